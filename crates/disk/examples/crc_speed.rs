//! Measures the functions that `checksum::crc32c` chooses between, at the sizes that ext4 has:
//! numbers, inodes, blocks.
//!
//! `cargo run --release -p extern4-disk --example crc_speed`

use std::hint::black_box;
use std::time::Instant;

use crc_fast::{CrcAlgorithm, Digest};
use extern4_disk::checksum;

fn main() {
    let data: Vec<u8> = (0..1u32 << 16)
        .map(|i| (i * 7 + i / 251).to_le_bytes()[0])
        .collect();
    println!(
        "{:>7} {:>12} {:>12} {:>12}   ns each, least of 7 runs",
        "bytes", "ours", "crc-fast", "crc32c"
    );
    for len in [4, 8, 16, 32, 128, 256, 1024, 4096, 65536] {
        let data = &data[..len];
        let times = [ours, crc_fast_alone, crc32c_crate].map(|function| measure(function, data));
        println!(
            "{len:>7} {:>12.1} {:>12.1} {:>12.1}",
            times[0], times[1], times[2]
        );
        assert_eq!(ours(7, data), crc_fast_alone(7, data));
        assert_eq!(ours(7, data), crc32c_crate(7, data));
    }
}

fn ours(seed: u32, data: &[u8]) -> u32 {
    checksum::crc32c(seed, data)
}

fn crc_fast_alone(seed: u32, data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, seed.into());
    digest.update(data);
    u32::try_from(digest.get_state()).expect("a 32-bit checksum")
}

fn crc32c_crate(seed: u32, data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, data)
}

/// Returns the nanoseconds of one call.
fn measure(function: fn(u32, &[u8]) -> u32, data: &[u8]) -> f64 {
    let calls = 20_000_000 / (data.len() + 60);
    let run = || {
        let start = Instant::now();
        for _ in 0..calls {
            black_box(function(black_box(1), black_box(data)));
        }
        start.elapsed().as_secs_f64() * 1e9 / calls as f64
    };
    (0..7).map(|_| run()).fold(f64::INFINITY, f64::min)
}
