#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iotax_fuzz::fc_nvme::target(data));
