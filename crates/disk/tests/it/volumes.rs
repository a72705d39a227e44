//! The volumes that the other tests use: options of `mke2fs`, and a size.

pub(crate) const VOLUMES: &[(&str, &str)] = &[
    // Revisions and generations.
    ("-t ext2 -r 0 -b 1024", "4M"),
    ("-t ext2 -b 1024 -I 128", "8M"),
    ("-t ext2 -b 4096", "16M"),
    ("-t ext3 -b 1024", "16M"),
    ("-t ext3 -b 4096 -I 256", "24M"),
    ("-t ext4", "64M"),
    ("-t ext2 -o hurd -b 4096 -I 128", "8M"),
    // Block sizes, with several groups where the blocks are small.
    ("-t ext4 -b 1024 -O metadata_csum,64bit", "40M"),
    ("-t ext4 -b 2048 -O metadata_csum,64bit", "80M"),
    ("-t ext4 -b 4096 -O metadata_csum,64bit", "300M"),
    ("-t ext4 -b 8192 -O metadata_csum,64bit", "64M"),
    ("-t ext4 -b 16384 -O metadata_csum,64bit", "64M"),
    ("-t ext4 -b 32768 -O metadata_csum,64bit", "96M"),
    ("-t ext4 -b 65536 -O metadata_csum,64bit", "128M"),
    ("-t ext2 -b 65536", "64M"),
    // Inode sizes.
    ("-t ext4 -b 4096 -I 128 -O metadata_csum", "32M"),
    ("-t ext4 -b 1024 -I 512 -O metadata_csum", "32M"),
    ("-t ext4 -b 4096 -I 1024 -O metadata_csum", "32M"),
    ("-t ext4 -b 1024 -I 1024 -O metadata_csum", "32M"),
    ("-t ext4 -b 4096 -I 4096 -N 500 -O metadata_csum", "32M"),
    // Checksums and descriptor sizes.
    ("-t ext4 -b 1024 -g 1024 -O metadata_csum,^64bit", "20M"),
    (
        "-t ext4 -b 1024 -g 1024 -O ^metadata_csum,uninit_bg,^64bit",
        "20M",
    ),
    (
        "-t ext4 -b 1024 -g 1024 -O ^metadata_csum,uninit_bg,64bit",
        "20M",
    ),
    (
        "-t ext4 -b 1024 -g 1024 -O ^metadata_csum,^uninit_bg,^64bit",
        "20M",
    ),
    ("-t ext4 -O metadata_csum,metadata_csum_seed", "32M"),
    // Places of the groups' metadata.
    (
        "-t ext4 -b 1024 -g 256 -O meta_bg,^resize_inode,metadata_csum,64bit",
        "20M",
    ),
    (
        "-t ext4 -b 1024 -g 256 -O meta_bg,^resize_inode,metadata_csum,^64bit",
        "20M",
    ),
    (
        "-t ext4 -b 1024 -g 256 -O meta_bg,^resize_inode,^flex_bg,^sparse_super",
        "20M",
    ),
    (
        "-t ext2 -b 1024 -g 512 -O ^sparse_super,^resize_inode",
        "12M",
    ),
    (
        "-t ext4 -b 1024 -g 1024 -O sparse_super2,^resize_inode",
        "20M",
    ),
    (
        "-t ext4 -b 1024 -g 1024 -O sparse_super2 -E num_backup_sb=1",
        "20M",
    ),
    (
        "-t ext4 -b 1024 -g 1024 -O sparse_super2 -E num_backup_sb=0",
        "20M",
    ),
    ("-t ext4 -b 1024 -g 1024 -O ^flex_bg", "20M"),
    ("-t ext4 -b 1024 -g 1024 -G 4", "20M"),
    (
        "-t ext4 -b 1024 -g 256 -N 2000 -E lazy_itable_init=1,packed_meta_blocks=1",
        "40M",
    ),
    // Clusters.
    ("-t ext4 -b 1024 -C 16384 -O bigalloc", "300M"),
    ("-t ext4 -b 4096 -C 65536 -O bigalloc,metadata_csum", "256M"),
    ("-t ext4 -b 1024 -C 2048 -g 1024 -O bigalloc,^64bit", "24M"),
    // Features that change no layout, but bring special inodes and fields.
    (
        "-t ext4 -O orphan_file,fast_commit,large_dir,ea_inode,inline_data",
        "64M",
    ),
    ("-t ext4 -O mmp,quota,project,metadata_csum", "64M"),
    (
        "-t ext4 -O casefold,encrypt,verity,stable_inodes -E encoding=utf8,encoding_flags=strict",
        "64M",
    ),
    (
        "-t ext4 -L label-of-16-byte -M /mnt/point -m 10 -e remount-ro -E stride=4,stripe_width=16",
        "64M",
    ),
    ("-t ext4 -N 100000", "64M"),
    // Large and sparse.
    (
        "-t ext4 -N 65536 -E lazy_itable_init=1,lazy_journal_init=1",
        "1T",
    ),
];
