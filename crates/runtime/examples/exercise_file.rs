//! Performs random operations on one file and knows after each what the file must contain: as `fsx` does, for file
//! systems on a volume under test. It reads and writes at any offset and of any length, truncates and extends, flushes,
//! reopens, and drops caches if permitted.
//!
//!     exercise_file PATH SEED OPERATIONS SIZE_MAX_BYTES
//!
//! Exits with status 0 and one line if all data read were correct; otherwise it prints what was expected and the last
//! operations.
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Number of operations printed when data are wrong.
const REMEMBERED: usize = 24;
const LENGTH_MAX_BYTES: u64 = 96 << 10;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, numbers @ ..] = words.as_slice() else { usage() };
    let numbers: Vec<u64> = numbers.iter().map(|word| word.parse().unwrap_or_else(|_| usage())).collect();
    let [seed, operations, size_max] = numbers[..] else { usage() };
    let mut exerciser = Exerciser::new(PathBuf::from(path), seed, size_max).expect("the file can be made");
    for _ in 0..operations {
        if let Err(reason) = exerciser.step() {
            eprintln!("{path}: {reason}; done before, the latest last:");
            exerciser.done.iter().for_each(|each| eprintln!("  {each}"));
            std::process::exit(1);
        }
    }
    println!("{operations} operations, {} bytes read and right", exerciser.right_bytes);
}

fn usage() -> ! {
    eprintln!("usage: exercise_file PATH SEED OPERATIONS SIZE_MAX_BYTES");
    std::process::exit(2);
}

struct Exerciser {
    path: PathBuf,
    file: File,
    /// The correct contents of the file.
    model: Vec<u8>,
    size_max: u64,
    random: SplitMix,
    done: VecDeque<String>,
    right_bytes: u64,
}

impl Exerciser {
    fn new(path: PathBuf, seed: u64, size_max: u64) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        Ok(Self {
            path,
            file,
            model: Vec::new(),
            size_max: size_max.max(1),
            random: SplitMix(seed),
            done: VecDeque::with_capacity(REMEMBERED),
            right_bytes: 0,
        })
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.below(100) {
            0..45 => self.read(),
            45..85 => self.write(),
            85..92 => self.truncate(),
            92..96 => self.flush(),
            _ => self.reopen(),
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let offset = self.random.below(self.model.len() as u64 + 1);
        let length = self.length(self.model.len() as u64 - offset);
        self.tell(format!("read {length} bytes at {offset}"));
        self.compare(offset, length)
    }

    fn write(&mut self) -> Result<(), String> {
        // Mostly within the file or at its end, rarely beyond it, which leaves a hole.
        let reach = if self.random.below(8) == 0 { self.size_max } else { self.model.len() as u64 + 1 };
        let offset = self.random.below(reach.min(self.size_max));
        let length = self.length(self.size_max - offset);
        self.tell(format!("write {length} bytes at {offset}"));
        let data: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.random.next().to_le_bytes()).collect();
        let data = &data[..length as usize];
        self.file.write_all_at(data, offset).map_err(|error| format!("write: {error}"))?;
        let (start, end) = (offset as usize, (offset + length) as usize);
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[start..end].copy_from_slice(data);
        Ok(())
    }

    fn truncate(&mut self) -> Result<(), String> {
        let size = self.random.below(self.size_max + 1);
        self.tell(format!("truncate to {size} bytes"));
        self.file.set_len(size).map_err(|error| format!("truncate: {error}"))?;
        self.model.resize(size as usize, 0);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        self.tell("flush".to_owned());
        self.file.sync_all().map_err(|error| format!("flush: {error}"))
    }

    /// Reopens the file, half of the time without any of it in a cache, and checks all of it.
    fn reopen(&mut self) -> Result<(), String> {
        let drop_caches = self.random.below(2) == 0;
        self.tell(format!("open again{}", if drop_caches { ", caches dropped" } else { "" }));
        self.file.sync_all().map_err(|error| format!("flush: {error}"))?;
        if drop_caches {
            std::fs::write("/proc/sys/vm/drop_caches", "3").ok(); // requires permission
        }
        self.file =
            OpenOptions::new().read(true).write(true).open(&self.path).map_err(|error| format!("open: {error}"))?;
        let size = self.file.metadata().map_err(|error| format!("stat: {error}"))?.len();
        if size != self.model.len() as u64 {
            return Err(format!("the file has {size} bytes where {} are right", self.model.len()));
        }
        self.compare(0, size)
    }

    fn compare(&mut self, offset: u64, length: u64) -> Result<(), String> {
        let mut found = vec![0; length as usize];
        self.file.read_exact_at(&mut found, offset).map_err(|error| format!("read: {error}"))?;
        let right = &self.model[offset as usize..][..length as usize];
        if let Some(at) = found.iter().zip(right).position(|(found, right)| found != right) {
            let many = found.iter().zip(right).filter(|(found, right)| found != right).count();
            let place = offset + at as u64;
            return Err(format!(
                "{many} bytes are wrong, the first at {place}: {:#04x}, not {:#04x}",
                found[at], right[at]
            ));
        }
        self.right_bytes += length;
        Ok(())
    }

    fn length(&mut self, most: u64) -> u64 {
        self.random.below(most.min(LENGTH_MAX_BYTES) + 1)
    }

    fn tell(&mut self, what: String) {
        if self.done.len() == REMEMBERED {
            self.done.pop_front();
        }
        self.done.push_back(what);
    }
}

/// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
