//! Extended attributes: inside an inode, and in a block.
#![no_main]

use extern4_disk::xattr::{Attrs, Value};
use extern4_disk::{Place, Structure};
use libfuzzer_sys::fuzz_target;

const PLACE: Place = Place::new(Structure::Xattr);

fuzz_target!(|data: &[u8]| {
    let mut block = vec![0; 1024];
    let len = data.len().min(block.len());
    block[..len].copy_from_slice(&data[..len]);
    // Half of the inputs would die at the magic number.
    if data.len() % 2 == 0 {
        block[..4].copy_from_slice(&0xEA02_0000_u32.to_le_bytes());
    }
    if let Ok(Some(attrs)) = Attrs::in_inode(&block[..len.max(4)], PLACE) {
        visit(&attrs);
    }
    if let Ok((_, attrs)) = Attrs::in_block(&block, PLACE) {
        visit(&attrs);
        let _ = attrs.check_order(PLACE);
    }
});

fn visit(attrs: &Attrs<'_>) {
    let mut bytes = 0;
    for attr in attrs.iter() {
        let _ = attr.full_name();
        bytes += attr.name.len();
        if let Value::Here(value) = attr.value {
            bytes += value.len();
        }
        assert!(attrs.get(attr.index, attr.name).is_some());
    }
    assert!(bytes <= 1024, "names and values overlap");
    assert!(attrs.free_bytes() <= 1024);
}
