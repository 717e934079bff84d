"""Results that other programs measured, read from their files into a notebook.

`formats` is the one table of what can be read; each format is a file beside it that turns a file into `Measured`
results (`measured`) and knows nothing of studies. `campaign` reads many files and gives each result its treatment,
`study` makes a study of them, `write` keeps them. CPU that was recorded beside a run (sar, mpstat, esxtop) is read by
`processors` and joined by time.
"""
