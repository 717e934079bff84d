"""fio as the load generator: a job for a treatment (`job`), its output as a result (`output`), the `program`."""
