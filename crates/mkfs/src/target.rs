//! [`TARGETS`]: systems that do not read all volumes with the default features.
//!
//! `mkfs --for` and `build --for` look a name up. e2fsck before 1.47 refuses `orphan_file`, and
//! GRUB before 2.12 `metadata_csum_seed`; both are defaults of e2fsprogs 1.47.
//!
//! Sources: the bug reports 147 of e2fsprogs (e2fsck 1.46.5 and `orphan_file`) and 1031325 of
//! Debian (GRUB 2.06 and `metadata_csum_seed`); the changelog of Debian's e2fsprogs 1.47.0-2, which
//! turns both off in Debian 12 and in Ubuntu 24.04; Ubuntu's packages e2fsprogs 1.45.5 in 20.04,
//! and 1.47 not before 23.04.

/// The names of systems, and the features that a volume for each is made without, as `-O` takes
/// them.
pub const TARGETS: [(&str, &str); 7] = [
    ("debian11", BOTH),
    ("debian12", BOTH),
    ("ubuntu20.04", BOTH),
    ("ubuntu22.04", BOTH),
    ("ubuntu24.04", BOTH),
    ("grub2.06", "^metadata_csum_seed"),
    ("e2fsck1.46", "^orphan_file"),
];

const BOTH: &str = "^orphan_file,^metadata_csum_seed";
