//! Tests of the hash trees of real directories: lookups from the root, and hashes compared with
//! debugfs's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use extern4_disk::dirent::{self, DirEntry, FileType, Layout, StoredHash};
use extern4_disk::htree::{Hash, HashVersion, Hasher, HtreeNode, Root};
use extern4_disk::inode::{Inode, InodeFlags};
use extern4_disk::xattr::{self, Attr, NameIndex, Value};
use extern4_disk::{Place, Structure};
use extern4_testkit::image::{Image, ImageSpec, Step};
use extern4_testkit::{plan, tools};

use crate::reader::{Volume, ok};

const MIB: u64 = 1 << 20;
const PLACE: Place = Place::new(Structure::HtreeNode);

/// One directory's tree.
struct Tree<'a> {
    volume: &'a Volume,
    inode: Inode,
    blocks: BTreeMap<u64, Vec<u8>>,
    hasher: Hasher,
}

impl<'a> Tree<'a> {
    fn new(volume: &'a Volume, path: &[u8]) -> Self {
        Self::of(volume, volume.inode(volume.walk()[path].ino).0)
    }

    fn of(volume: &'a Volume, inode: Inode) -> Self {
        let blocks: BTreeMap<_, _> = volume.dir_blocks(&inode).into_iter().collect();
        let root = ok(Root::decode(
            &blocks[&0],
            &volume.htree_expect(&inode),
            PLACE,
        ));
        let version = if volume.sb.unsigned_hash() {
            root.hash_version.unsigned()
        } else {
            root.hash_version
        };
        let hasher = Hasher::new(version, volume.sb.hash_seed()).expect("no SipHash");
        Self {
            volume,
            inode,
            blocks,
            hasher,
        }
    }

    fn root(&self) -> Root<'_> {
        ok(Root::decode(
            &self.blocks[&0],
            &self.volume.htree_expect(&self.inode),
            PLACE,
        ))
    }

    fn node(&self, logical: u32) -> HtreeNode<'_> {
        ok(HtreeNode::decode(
            &self.blocks[&u64::from(logical)],
            &self.volume.htree_expect(&self.inode),
            PLACE,
        ))
    }

    fn leaf_has(&self, logical: u32, name: &[u8]) -> bool {
        let layout = self.volume.layout(&self.inode);
        ok(dirent::find(
            &self.blocks[&u64::from(logical)],
            name,
            &layout,
            PLACE,
        ))
        .is_some()
    }

    /// Looks `name` up as a reader does: down by hash, then on while leaves continue. Returns how
    /// many leaves it took.
    fn lookup(&self, name: &[u8]) -> Option<usize> {
        let major = self.hasher.hash(name).major;
        let root = self.root();
        let mut way = vec![(root.node, root.node.find(major))];
        for _ in 0..root.levels {
            let (node, at) = *way.last().expect("a root");
            let below = self.node(node.block(at));
            way.push((below, below.find(major)));
        }
        for leaves in 1.. {
            let (node, at) = *way.last().expect("a lowest node");
            if self.leaf_has(node.block(at), name) {
                return Some(leaves);
            }
            // The next leaf in order may be below another node.
            let depth = way.iter().rposition(|(node, at)| at + 1 < node.len())?;
            if !way[depth].0.continues(way[depth].1 + 1, major) {
                return None;
            }
            way[depth].1 += 1;
            for lower in depth + 1..way.len() {
                let (node, at) = way[lower - 1];
                way[lower] = (self.node(node.block(at)), 0);
            }
        }
        None
    }

    /// Looks every name up. Returns how many names there are and the most leaves that one took.
    fn look_up_all(&self) -> (usize, usize) {
        let record = self.volume.inode(self.inode.ino()).1;
        let names = self.volume.names(&self.inode, &record);
        let leaves = names.iter().map(|name| {
            self.lookup(&name.name)
                .unwrap_or_else(|| panic!("{} is lost", name.name.escape_ascii()))
        });
        let most = leaves.max().expect("a name");
        assert_eq!(self.lookup(b"a name that is not there"), None);
        (names.len(), most)
    }

    /// Compares the hash of every name with the one in debugfs's dump of the tree.
    fn compare_with_dump(&self, image: &Path) {
        let said = tools::debugfs_bytes(
            image,
            false,
            &format!("htree_dump <{}>\n", self.inode.ino()),
        );
        let mut compared = 0;
        // INO 0xMAJOR-MINOR (REC_LEN) NAME
        for line in said.split(|&byte| byte == b'\n') {
            let mut words = line.splitn(4, |&byte| byte == b' ');
            let (Some(ino), Some(hash), Some(_), Some(name)) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                continue;
            };
            let text = String::from_utf8_lossy(hash);
            let Some((major, minor)) = text
                .strip_prefix("0x")
                .and_then(|hash| hash.split_once('-'))
            else {
                continue;
            };
            let hex = |digits: &str| u32::from_str_radix(digits, 16).expect("a hash");
            assert!(ino.iter().all(u8::is_ascii_digit));
            // The block's checksum follows the last name of a block.
            let end = name
                .windows(3)
                .position(|window| window == b"   ")
                .expect("spaces behind a name");
            let name = &name[..end];
            assert_eq!(
                self.hasher.hash(name),
                Hash {
                    major: hex(major),
                    minor: hex(minor)
                },
                "{}",
                name.escape_ascii()
            );
            compared += 1;
        }
        assert!(compared > 100, "the dump has {compared} names");
    }
}

fn create(dir: &Path, names: impl IntoIterator<Item = Vec<u8>>) -> io::Result<()> {
    std::fs::create_dir(dir)?;
    names
        .into_iter()
        .try_for_each(|name| std::fs::File::create(dir.join(OsStr::from_bytes(&name))).map(drop))
}

/// Creates names of many lengths beyond ASCII, none of which debugfs has to escape.
fn accents(root: &Path) -> io::Result<()> {
    let name = |at: usize| {
        [
            format!("{at}-").as_bytes(),
            "äöü€".repeat(at % 20).as_bytes(),
        ]
        .concat()
    };
    create(&root.join("dir"), (0..600).map(name))
}

/// Creates enough long names that blocks of 1 KiB need three levels of nodes.
fn long_names(root: &Path) -> io::Result<()> {
    create(
        &root.join("dir"),
        (0..60_000).map(|at| format!("{at:0>250}").into_bytes()),
    )
}

/// The endings of names that have the same legacy hash after 240 times `c`.
const COLLIDING: [&str; 24] = [
    "aMWwXW", "dU_RqJ", "fe0nDp", "fr6EKj", "hqlW7z", "j83gaf", "mbUXTv", "nyI1wO", "n-eBZz",
    "oV6kKs", "ruoC4e", "tR0QBh", "uMLD82", "u4gnDi", "vTcQTn", "wlplf4", "wptFKL", "wIwLTO",
    "xcX_44", "xsmlxa", "xIL7c6", "zzPwdq", "DRMqG0", "FK9RPv",
];

fn collisions(root: &Path) -> io::Result<()> {
    let others = (0..200).map(|at| format!("{at:0>240}").into_bytes());
    let colliding = COLLIDING
        .iter()
        .map(|rest| ["c".repeat(240).as_str(), rest].concat().into_bytes());
    create(&root.join("dir"), others.chain(colliding))
}

const ONE_K: &[&str] = &["-t", "ext4", "-b", "1024", "-N", "1000"];

/// Volumes that hash with each function, over signed and unsigned bytes.
const HASHED: [ImageSpec; 6] = [
    ImageSpec::new("legacy", 16 * MIB, ONE_K).then(&[
        Step::Tune2fs(&["-E", "hash_alg=legacy"]),
        Step::Mounted("noatime", &[accents]),
    ]),
    ImageSpec::new("half_md4", 16 * MIB, ONE_K).mounted(&[accents]),
    ImageSpec::new("tea", 16 * MIB, ONE_K).then(&[
        Step::Tune2fs(&["-E", "hash_alg=tea"]),
        Step::Mounted("noatime", &[accents]),
    ]),
    ImageSpec::new("legacy_unsigned", 16 * MIB, ONE_K).then(&[
        Step::Tune2fs(&["-E", "hash_alg=legacy"]),
        Step::Debugfs("ssv flags 2\n"),
        Step::Mounted("noatime", &[accents]),
    ]),
    ImageSpec::new("half_md4_unsigned", 16 * MIB, ONE_K).then(&[
        Step::Debugfs("ssv flags 2\n"),
        Step::Mounted("noatime", &[accents]),
    ]),
    ImageSpec::new("tea_unsigned", 16 * MIB, ONE_K).then(&[
        Step::Tune2fs(&["-E", "hash_alg=tea"]),
        Step::Debugfs("ssv flags 2\n"),
        Step::Mounted("noatime", &[accents]),
    ]),
];

#[test]
fn every_function_finds_every_name() {
    for (spec, version) in HASHED.iter().zip([0, 1, 2, 0, 1, 2]) {
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let volume = Volume::open(&image.path);
        let tree = Tree::new(&volume, b"/dir");
        assert_eq!(tree.root().hash_version.to_raw(), version, "{}", spec.name);
        assert_eq!(tree.look_up_all().0, 600, "{}", spec.name);
        tree.compare_with_dump(&image.path);
    }
}

#[test]
fn two_levels() {
    const EXT3: ImageSpec =
        ImageSpec::new("ext3", 64 * MIB, &["-t", "ext3", "-b", "1024"]).mounted(&[plan::crowd]);
    const EXT4: ImageSpec =
        ImageSpec::new("ext4", 64 * MIB, &["-t", "ext4", "-b", "1024"]).mounted(&[plan::crowd]);
    for spec in [EXT3, EXT4] {
        if !spec.can_run() {
            return;
        }
        let image = spec.build();
        let volume = Volume::open(&image.path);
        let levels = |ino: u32| {
            let inode = volume.inode(ino).0;
            let hashed = inode.flags().contains(InodeFlags::INDEX);
            hashed
                .then(|| Tree::of(&volume, inode))
                .filter(|tree| tree.root().levels == 1)
        };
        let tree = volume
            .walk()
            .into_values()
            .find_map(|name| levels(name.ino))
            .expect("a tree of two levels");
        tree.look_up_all();
        // debugfs complains of nodes without checksums.
        if volume.sb.metadata_seed().is_some() {
            tree.compare_with_dump(&image.path);
        }
    }
}

#[test]
fn three_levels() {
    const SPEC: ImageSpec = ImageSpec::new(
        "large_dir",
        96 * MIB,
        &["-t", "ext4", "-b", "1024", "-N", "61000", "-O", "large_dir"],
    )
    .mounted(&[long_names]);
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = Volume::open(&image.path);
    let tree = Tree::new(&volume, b"/dir");
    assert_eq!(tree.root().levels, 2);
    assert_eq!(tree.look_up_all().0, 60_000);
}

#[test]
fn names_with_one_hash_spill_over_several_leaves() {
    const SPEC: ImageSpec = ImageSpec::new("collisions", 16 * MIB, ONE_K).then(&[
        Step::Tune2fs(&["-E", "hash_alg=legacy"]),
        Step::Mounted("noatime", &[collisions]),
    ]);
    if !SPEC.can_run() {
        return;
    }
    let image = SPEC.build();
    let volume = Volume::open(&image.path);
    let tree = Tree::new(&volume, b"/dir");
    let (count, leaves) = tree.look_up_all();
    assert_eq!(count, 224);
    assert!(
        leaves >= 6,
        "24 names of 254 bytes fit in {leaves} leaves of 1 KiB"
    );
}

/// Returns names of random bytes that debugfs's command line takes as they are.
fn random_names(count: usize) -> Vec<Vec<u8>> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 32
    };
    let alphabet: Vec<u8> = (b'0'..=b'9')
        .chain(b'a'..=b'z')
        .chain(0x80..=0xFF)
        .collect();
    let mut byte = move |bound: usize| random() as usize % bound;
    (0..count)
        .map(|_| {
            let len = 1 + byte(255);
            (0..len).map(|_| alphabet[byte(alphabet.len())]).collect()
        })
        .collect()
}

#[test]
fn random_names_hash_as_debugfs_hashes() {
    if !tools::can_run(&[tools::Need::Tool("mke2fs"), tools::Need::Tool("debugfs")]) {
        return;
    }
    let image = ImageSpec::new("empty", MIB, ONE_K).build();
    let names = random_names(300);
    let seeds = [
        (
            "00112233-4455-6677-8899-aabbccddeeff",
            [0x3322_1100, 0x7766_5544, 0xBBAA_9988, 0xFFEE_DDCC],
        ),
        ("00000000-0000-0000-0000-000000000000", [0; 4]),
    ];
    for (text, seed) in seeds {
        for version in (0..6).filter_map(HashVersion::from_raw) {
            let hasher = Hasher::new(version, seed).expect("no SipHash");
            for name in names.chunks(100) {
                compare(&image.path, text, &hasher, version.to_raw(), name);
            }
        }
    }
}

fn compare(image: &Path, seed: &str, hasher: &Hasher, version: u8, names: &[Vec<u8>]) {
    let command = |name: &Vec<u8>| {
        [
            format!("dx_hash -h {version} -s {seed} ").as_bytes(),
            name,
            b"\n",
        ]
        .concat()
    };
    let script = image.with_extension("script");
    std::fs::write(&script, names.iter().flat_map(command).collect::<Vec<u8>>()).expect("a script");
    let said = tools::run(
        "debugfs",
        [OsStr::new("-f"), script.as_os_str(), image.as_os_str()],
    );
    // Hash of NAME is 0xMAJOR (minor 0xMINOR)
    let answers: Vec<Hash> = said
        .split(|&byte| byte == b'\n')
        .filter(|line| line.starts_with(b"Hash of "))
        .map(|line| {
            let mut words = line
                .rsplit(|&byte| byte == b' ')
                .map(String::from_utf8_lossy);
            let mut hex = || {
                let word = words.find(|word| word.starts_with("0x")).expect("a hash");
                u32::from_str_radix(word.trim_start_matches("0x").trim_end_matches(')'), 16)
                    .expect("a number")
            };
            let minor = hex();
            Hash {
                major: hex(),
                minor,
            }
        })
        .collect();
    assert_eq!(answers.len(), names.len());
    for (name, answer) in names.iter().zip(answers) {
        assert_eq!(
            hasher.hash(name),
            answer,
            "function {version}, {}",
            name.escape_ascii()
        );
    }
}

/// A volume whose directories may be both encrypted and case-folded; no kernel here can write to
/// it.
const FOLDED: ImageSpec = ImageSpec::new(
    "folded",
    8 * MIB,
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-N",
        "100",
        "-O",
        "encrypt,casefold,^metadata_csum",
        "-E",
        "encoding=utf8",
    ],
)
.then(&[
    // Inode 13 is a pipe: unlike files, it may be in an encrypted directory without being encrypted
    // itself.
    Step::Debugfs("mkdir dir\nexpand_dir dir\nexpand_dir dir\nexpand_dir dir\nmknod pipe p\n"),
    Step::Run(fill_folded),
    Step::Debugfs("sif dir flags 0x40080800\nsif pipe links_count 81\n"),
    Step::E2fsck(&["-D"]),
]);

/// Writes eighty names and an encryption context. The names have 17 bytes, so padding separates
/// each from the hash after it.
fn fill_folded(image: &Image) {
    let volume = Volume::open(&image.path);
    let (dir, mut record) = volume.inode(12);
    let layout = Layout {
        encrypted: true,
        casefold: true,
        ..volume.layout(&dir)
    };
    let image = std::fs::File::options()
        .write(true)
        .open(&image.path)
        .expect("an image");
    fn entry(ino: u32, kind: FileType, name: &[u8], hash: Option<StoredHash>) -> DirEntry<'_> {
        DirEntry {
            ino,
            kind,
            name,
            offset: 0,
            hash,
        }
    }
    for (logical, physical, _) in volume.map(&dir).data {
        let mut block = vec![0; 1024];
        let mut at = 0;
        if logical == 0 {
            entry(12, FileType::Directory, b".", None).encode(&mut block[..12], &layout);
            entry(2, FileType::Directory, b"..", None).encode(&mut block[12..24], &layout);
            at = 24;
        }
        for number in 0..20 {
            let number = logical as u32 * 20 + number;
            let name = format!("ciphertext-{number:06}");
            let end = if number % 20 == 19 {
                1024
            } else {
                at + layout.rec_len(name.as_bytes())
            };
            // Descending, so that e2fsck has to sort.
            let hash = StoredHash {
                major: (200 - number) << 24 >> 1,
                minor: number,
            };
            entry(13, FileType::Fifo, name.as_bytes(), Some(hash))
                .encode(&mut block[at..end], &layout);
            at = end;
        }
        image
            .write_all_at(&block, physical * 1024)
            .expect("a written block");
    }
    // Version 2, AES-256 for contents and names, no flags, a key's name and a nonce.
    let context = [&[2, 1, 4, 0, 0, 0, 0, 0][..], &[7; 16], &[9; 16]].concat();
    let attr = Attr {
        index: NameIndex::ENCRYPTION,
        name: b"c",
        value: Value::Here(&context),
        hash: 0,
    };
    let start = record.len() - dir.xattr_area(&record).len();
    xattr::encode_in_inode(&[attr], &mut record[start..]).expect("room in the inode");
    let geometry = volume.sb.geometry();
    let slot = geometry.inode_slot(12).expect("an inode");
    let at = geometry
        .inode_position(volume.group(slot.group).inode_table(), slot.index)
        .expect("a position");
    image
        .write_all_at(&record, at.block * 1024 + u64::from(at.offset))
        .expect("a written inode");
}

#[test]
fn stored_hashes_are_where_e2fsck_finds_them() {
    if !FOLDED.can_run() {
        return;
    }
    let image = FOLDED.build();
    let volume = Volume::open(&image.path);
    let dir = volume.inode(12).0;
    let layout = volume.layout(&dir);
    assert!(layout.hashes_in_entries());
    let blocks: BTreeMap<_, _> = volume.dir_blocks(&dir).into_iter().collect();
    let root = ok(Root::decode(&blocks[&0], &volume.htree_expect(&dir), PLACE));
    assert_eq!((root.hash_version, root.levels), (HashVersion::SipHash, 0));
    assert!(root.node.len() > 2);
    let mut names = 0;
    let mut last = 0;
    for (index, (lowest, block)) in root.node.iter().enumerate() {
        let next = if index + 1 < root.node.len() {
            root.node.hash(index + 1)
        } else {
            u32::MAX
        };
        for entry in
            dirent::Entries::new(&blocks[&u64::from(block)], &layout, PLACE).map(|entry| ok(entry))
        {
            let hash = entry.hash.expect("a hash behind the name");
            assert_eq!(hash.major, (200 - hash.minor) << 24 >> 1);
            assert_eq!(
                entry.name,
                format!("ciphertext-{:06}", hash.minor).as_bytes()
            );
            assert!((lowest..next).contains(&hash.major) && hash.major > last);
            last = hash.major;
            names += 1;
        }
    }
    assert_eq!(names, 80);
}
