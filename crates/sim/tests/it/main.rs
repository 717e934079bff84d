//! Tests of the simulator, in one binary.
#![allow(clippy::unwrap_used, reason = "a test")]

mod ends;
mod fabrics;
mod faults;
mod happenings;
mod loads;
mod loss;
mod multipath;
mod partners;
mod receives;
mod support;
mod switches;
mod theory;
