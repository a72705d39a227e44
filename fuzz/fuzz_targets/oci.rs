//! Images of containers: layouts and archives of `docker save`.
#![no_main]

use extern4_fuzz::image::is_read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    is_read(data);
});
