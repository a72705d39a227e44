//! Tar archives from recipes. Random bytes are refused at the first checksum, so an input says
//! which members an archive has, and a few bytes of their headers; the checksums are right.

const BLOCK: usize = 512;

/// Types of members.
const KINDS: &[u8] = b"00001234567xxxxgLKSDVMXZ\0";

/// Parts of names.
const NAMES: [&str; 16] = [
    "a",
    "b",
    "c/",
    "a/",
    "/",
    "./",
    "../",
    ".wh.a",
    ".wh.",
    ".wh..wh..opq",
    "d/e",
    "f",
    "g",
    ".",
    "..",
    "é",
];

/// Keys of extended headers.
const KEYS: [&str; 24] = [
    "path",
    "linkpath",
    "size",
    "uid",
    "gid",
    "mtime",
    "SCHILY.xattr.user.a",
    "SCHILY.xattr.system.posix_acl_access",
    "SCHILY.xattr.",
    "LIBARCHIVE.xattr.user.a%3D",
    "LIBARCHIVE.xattr.user.b",
    "RHT.security.selinux",
    "SCHILY.acl.access",
    "SCHILY.acl.default",
    "GNU.sparse.major",
    "GNU.sparse.minor",
    "GNU.sparse.name",
    "GNU.sparse.realsize",
    "GNU.sparse.size",
    "GNU.sparse.numblocks",
    "GNU.sparse.offset",
    "GNU.sparse.numbytes",
    "GNU.sparse.map",
    "comment",
];

/// Values that the parsers of records understand.
const VALUES: [&str; 12] = [
    "",
    "0",
    "1",
    "3",
    "100000",
    "-0.25",
    "0,3,512,2",
    "99,1",
    "18446744073709551615",
    "user::rw-,user:x:r--:5,group::r--,mask::r--,other::---",
    "user::rw-,group::r--,other::---",
    "2\n0\n3\n100\n2\n",
];

/// An input that is taken byte by byte. It ends with zeroes.
pub struct Recipe<'a>(pub &'a [u8]);

impl<'a> Recipe<'a> {
    /// Takes a byte.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Takes this number of bytes, or the bytes that are left.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    fn name(&mut self) -> Vec<u8> {
        let form = self.byte();
        if form & 7 == 7 {
            let count = usize::from(self.byte()) % 120;
            return self.bytes(count).to_vec();
        }
        let parts = (0..1 + form % 4).map(|_| NAMES[usize::from(self.byte()) % NAMES.len()]);
        parts.collect::<String>().into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let form = self.byte();
        if form & 3 == 3 {
            return self.bytes(usize::from(form) / 4).to_vec();
        }
        VALUES[usize::from(form / 4) % VALUES.len()].into()
    }

    fn records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        for _ in 0..self.byte() % 8 {
            let key = KEYS[usize::from(self.byte()) % KEYS.len()];
            record(&mut records, key, &self.value());
        }
        records
    }

    fn member(&mut self, archive: &mut Vec<u8>) {
        let kind = KINDS[usize::from(self.byte()) % KINDS.len()];
        let name = self.name();
        let data = match kind {
            b'x' | b'g' | b'X' => self.records(),
            b'L' | b'K' => self.name(),
            b'1' | b'2' => Vec::new(),
            _ => {
                let value = self.value();
                let padding = usize::from(self.byte() & 1) * (BLOCK - value.len());
                [value, vec![0; padding], vec![7; usize::from(self.byte())]].concat()
            }
        };
        let mut header = header(kind, &name, data.len());
        if matches!(kind, b'1' | b'2') {
            let link = self.name();
            let len = link.len().min(100);
            header[157..157 + len].copy_from_slice(&link[..len]);
        }
        let form = self.byte();
        if form & 3 == 3 {
            header[257..265].copy_from_slice(b"ustar  \0");
        }
        // Some bytes anywhere in the header.
        for _ in 0..form / 4 % 4 {
            let at = usize::from(self.byte()) * 2 + usize::from(form >> 7);
            let bytes = self.bytes(usize::from(form >> 4) % 12);
            let len = bytes.len().min(BLOCK - at);
            header[at..at + len].copy_from_slice(&bytes[..len]);
        }
        add(archive, header, &data);
    }

    /// Takes an archive.
    pub fn archive(&mut self) -> Vec<u8> {
        let mut archive = Vec::new();
        for _ in 0..1 + self.byte() % 12 {
            self.member(&mut archive);
        }
        match self.byte() {
            // It is cut off.
            cut @ 1..64 => archive.truncate(archive.len() - archive.len() * usize::from(cut) / 128),
            64 => {}
            _ => archive.resize(archive.len() + 2 * BLOCK, 0),
        }
        archive
    }
}

/// Adds a record of an extended header.
fn record(records: &mut Vec<u8>, key: &str, value: &[u8]) {
    let bare = key.len() + value.len() + 3;
    let length = if bare + 1 < 10 {
        bare + 1
    } else if bare + 2 < 100 {
        bare + 2
    } else {
        bare + 3
    };
    records.extend(format!("{length} {key}=").bytes());
    records.extend_from_slice(value);
    records.push(b'\n');
}

fn header(kind: u8, name: &[u8], size: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let len = name.len().min(100);
    header[..len].copy_from_slice(&name[..len]);
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    header
}

/// Adds a member with a right checksum.
fn add(archive: &mut Vec<u8>, mut header: [u8; BLOCK], data: &[u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    archive.extend(header);
    archive.extend_from_slice(data);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
}

/// Adds a plain file.
pub fn add_file(archive: &mut Vec<u8>, name: &str, data: &[u8]) {
    add(archive, header(b'0', name.as_bytes(), data.len()), data);
}
