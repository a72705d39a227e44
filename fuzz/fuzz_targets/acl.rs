//! POSIX ACLs, as the disk and as `system.posix_acl_*` hold them: whatever decodes, encodes to the
//! same list again.
#![no_main]

use extern4::Acl;
use extern4_disk::acl::{decode, encode};
use extern4_disk::{Place, Structure};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let place = Place::new(Structure::Acl);
    if let Ok(acl) = decode(data, place) {
        assert_eq!(decode(&encode(&acl), place).as_ref(), Ok(&acl));
    }
    if let Ok(Some(acl)) = Acl::from_xattr(data) {
        assert_eq!(
            Acl::from_xattr(&acl.to_xattr()).unwrap().as_ref(),
            Some(&acl)
        );
    }
});
