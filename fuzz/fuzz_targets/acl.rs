//! POSIX ACLs, as the disk and as `system.posix_acl_*` hold them: whatever decodes, encodes to the same list again.
#![no_main]

use extern4_disk::acl::Acl;
use extern4_disk::{Place, Structure};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let place = Place::new(Structure::Acl);
    if let Ok(acl) = Acl::decode(data, place) {
        assert_eq!(Acl::decode(&acl.encode(), place).as_ref(), Ok(&acl));
    }
    if let Ok(Some(acl)) = Acl::decode_xattr(data) {
        assert_eq!(Acl::decode_xattr(&acl.encode_xattr()).unwrap().as_ref(), Some(&acl));
    }
});
