//! One binary for all fuzz targets: `IOTAX_FUZZ` names the target that receives libFuzzer's input.
#![no_main]

use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("IOTAX_FUZZ").unwrap_or_default();
    let known = iotax_fuzz::TARGETS.iter().find(|(known, _)| *known == name);
    let names: Vec<_> = iotax_fuzz::TARGETS.iter().map(|(known, _)| *known).collect();
    known.unwrap_or_else(|| panic!("IOTAX_FUZZ={name}: set it to one of {}", names.join(", "))).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
