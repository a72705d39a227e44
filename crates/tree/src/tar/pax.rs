//! Extended headers: records that replace or add to the fields of a member's header.
//!
//! `read` splits headers by [`records`] and applies them to an [`Extended`]. It knows the keys of
//! POSIX, and the records of star, libarchive, GNU tar and Red Hat for attributes, ACLs and sparse
//! files. If an attribute comes in several forms, one wins by a fixed order. A damaged record is an
//! error; unknown keys are ignored.

use extern4_disk::inode::InodeFlags;

use super::file_flags;
use crate::Time;
use crate::acl::Acl;

/// The most bytes of one extended header, and of all global ones together.
pub(super) const LARGEST: u64 = 16 << 20;

/// Linux's limits for the name and the value of an extended attribute.
const LONGEST_XATTR_NAME: usize = 255;
const LARGEST_XATTR: usize = 65536;

/// The contents of a member's extended headers.
#[derive(Default, Debug)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mtime: Option<Time>,
    pub(super) flags: Option<InodeFlags>,
    pub(super) project: Option<u32>,
    xattrs: Vec<Xattr>,
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
    pub(super) sparse: SparseRecords,
}

/// The records of a sparse file, in the forms of GNU tar.
#[derive(Default, Debug)]
pub(super) struct SparseRecords {
    /// The version of the form, if it is given: 1.0 has its map before the contents.
    pub(super) major: Option<u64>,
    pub(super) name: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// An offset and a length for each piece.
    pub(super) map: Vec<u64>,
}

/// An extended attribute. If it comes in several forms, the first in the order of [`XattrForm`]
/// counts.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Xattr {
    name: Vec<u8>,
    form: XattrForm,
    value: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum XattrForm {
    /// A record `SCHILY.xattr`; `true` for one of a global header, which comes after one of the
    /// member.
    Star(bool),
    Libarchive,
    RedHat,
    Acl,
}

/// One record, or one attribute: the key or name, and the value.
pub(super) type Record = (Vec<u8>, Vec<u8>);

/// Splits an extended header into its records.
pub(super) fn records(mut bytes: &[u8]) -> Result<Vec<Record>, &'static str> {
    const DAMAGED: &str = "its extended header is damaged";
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let space = bytes
            .iter()
            .take(20)
            .position(|byte| *byte == b' ')
            .ok_or(DAMAGED)?;
        let length = decimal(&bytes[..space])
            .and_then(|length| usize::try_from(length).ok())
            .ok_or(DAMAGED)?;
        if length <= space + 1 || length > bytes.len() || bytes[length - 1] != b'\n' {
            return Err(DAMAGED);
        }
        let record = &bytes[space + 1..length - 1];
        let equals = record
            .iter()
            .position(|byte| *byte == b'=')
            .ok_or(DAMAGED)?;
        found.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        bytes = &bytes[length..];
    }
    Ok(found)
}

impl Extended {
    /// Applies a record. The error says which one is wrong.
    pub(super) fn apply(&mut self, key: &[u8], value: &[u8], global: bool) -> Result<(), String> {
        let wrong = || format!("its record '{}' is damaged", String::from_utf8_lossy(key));
        let number = || {
            if value.is_empty() {
                Ok(None)
            } else {
                decimal(value).map(Some).ok_or_else(wrong)
            }
        };
        let id = || match number()? {
            Some(id) => u32::try_from(id).map(Some).map_err(|_| wrong()),
            None => Ok(None),
        };
        // An empty value cancels earlier records of the key.
        let given = || {
            Some(value)
                .filter(|value| !value.is_empty())
                .map(<[u8]>::to_vec)
        };
        match key {
            b"path" => self.path = given(),
            b"linkpath" => self.link = given(),
            b"size" => self.size = number()?,
            b"uid" => self.uid = id()?,
            b"gid" => self.gid = id()?,
            b"mtime" if value.is_empty() => self.mtime = None,
            b"mtime" => self.mtime = Some(time(value).ok_or_else(wrong)?),
            b"SCHILY.fflags" => self.flags = given().map(|names| file_flags::parse(&names)),
            super::PROJECT => self.project = id()?,
            b"SCHILY.acl.access" => self.access = given(),
            b"SCHILY.acl.default" => self.default = given(),
            b"RHT.security.selinux" => {
                let mut label = value.to_vec();
                if label.last() != Some(&0) {
                    label.push(0);
                }
                self.xattr(b"security.selinux".to_vec(), XattrForm::RedHat, label)
                    .ok_or_else(wrong)?;
            }
            _ => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.xattr(unescape_star(name), XattrForm::Star(global), value.to_vec())
                        .ok_or_else(wrong)?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    let name = unescape(name);
                    let value = base64(value).ok_or_else(wrong)?;
                    self.xattr(name, XattrForm::Libarchive, value)
                        .ok_or_else(wrong)?;
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.apply(key, value).ok_or_else(wrong)?;
                }
            }
        }
        Ok(())
    }

    /// Adds an attribute; `None` if Linux cannot have such an attribute.
    fn xattr(&mut self, name: Vec<u8>, form: XattrForm, value: Vec<u8>) -> Option<()> {
        let fits = !name.is_empty() && name.len() <= LONGEST_XATTR_NAME && !name.contains(&0);
        if !fits || value.len() > LARGEST_XATTR {
            return None;
        }
        self.set_xattr(name, form, value);
        Some(())
    }

    fn set_xattr(&mut self, name: Vec<u8>, form: XattrForm, value: Vec<u8>) {
        if let Some(old) = self
            .xattrs
            .iter_mut()
            .find(|old| old.name == name && old.form == form)
        {
            old.value = value;
        } else {
            self.xattrs.push(Xattr { name, form, value });
        }
    }

    /// Returns the extended attributes, including ACLs, sorted by name. Sets the permission bits of
    /// `mode` from the access ACL. The error says what is wrong with an ACL.
    pub(super) fn xattrs(&mut self, mode: &mut u16) -> Result<Vec<Record>, String> {
        let texts = [
            (&b"system.posix_acl_access"[..], self.access.take()),
            (b"system.posix_acl_default", self.default.take()),
        ];
        for (name, text) in texts {
            let Some(text) = text else { continue };
            if self.xattrs.iter().any(|xattr| xattr.name == name) {
                continue;
            }
            let is_access = name.ends_with(b"access");
            match Acl::parse(&text) {
                Ok(acl) if is_access => {
                    *mode = *mode & !0o777 | acl.mode();
                    if !acl.is_minimal() {
                        self.set_xattr(name.to_vec(), XattrForm::Acl, acl.to_xattr());
                    }
                }
                Ok(acl) => self.set_xattr(name.to_vec(), XattrForm::Acl, acl.to_xattr()),
                Err(reason) => return Err(format!("its ACL {reason}")),
            }
        }
        self.xattrs.sort();
        self.xattrs
            .dedup_by(|later, earlier| later.name == earlier.name);
        Ok(self
            .xattrs
            .drain(..)
            .map(|xattr| (xattr.name, xattr.value))
            .collect())
    }
}

impl SparseRecords {
    fn apply(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"major" => self.major = Some(decimal(value)?),
            b"name" => self.name = Some(value.to_vec()),
            b"realsize" | b"size" => self.size = Some(decimal(value)?),
            b"offset" | b"numbytes" => self.map.push(decimal(value)?),
            b"map" => {
                self.map = value
                    .split(|byte| *byte == b',')
                    .map(decimal)
                    .collect::<Option<_>>()?;
            }
            _ => {}
        }
        Some(())
    }
}

/// Parses a decimal number.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// Parses seconds with a fraction.
fn time(text: &[u8]) -> Option<Time> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let secs = i128::from(decimal(parts.next()?)?);
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction
        .iter()
        .copied()
        .chain(std::iter::repeat(b'0'))
        .take(9);
    let nanos = digits.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0'));
    let (secs, nanos) = match (negative, nanos) {
        (false, _) => (secs, nanos),
        (true, 0) => (-secs, nanos),
        (true, _) => (-secs - 1, 1_000_000_000 - nanos),
    };
    Some(Time {
        secs: secs.try_into().ok()?,
        nanos,
    })
}

/// Replaces `%3D` and `%25`, which GNU tar writes for `=` and `%`. Other programs write no `%`.
fn unescape_star(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let (byte, tail) = match rest {
            [b'%', b'3', b'D' | b'd', tail @ ..] => (b'=', tail),
            [b'%', b'2', b'5', tail @ ..] => (b'%', tail),
            _ => (*first, tail),
        };
        bytes.push(byte);
        rest = tail;
    }
    bytes
}

/// Replaces `%41` by the byte.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

/// Decodes base 64, with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let mut bits = 0_u32;
    let mut count = 0;
    for letter in text.iter().take_while(|letter| **letter != b'=') {
        let six = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'\n' => continue,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_split() {
        let found = records(b"12 path=a=b\n7 x=\n\0\n").unwrap();
        assert_eq!(
            found,
            [
                (b"path".to_vec(), b"a=b".to_vec()),
                (b"x".to_vec(), b"\n\0".to_vec())
            ]
        );
        for wrong in [
            &b"12 path=abc"[..],
            b"5 abc\n\n",
            b"x",
            b"3 \n",
            b"99999999999999999999 a=\n",
            b"0 a=b\n",
        ] {
            assert!(records(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_have_fractions() {
        for (text, secs, nanos) in [
            ("0", 0, 0),
            ("1.5", 1, 500_000_000),
            ("1234567890.987654321", 1_234_567_890, 987_654_321),
            ("1.9876543219", 1, 987_654_321),
            ("-1.25", -2, 750_000_000),
            ("-3", -3, 0),
            ("7.", 7, 0),
            ("-9223372036854775808", i64::MIN, 0),
            ("9223372036854775807.1", i64::MAX, 100_000_000),
        ] {
            assert_eq!(time(text.as_bytes()), Some(Time { secs, nanos }), "{text}");
        }
        for wrong in ["", "-", "1.x", "x", "1e5", "99999999999999999999"] {
            assert_eq!(time(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn attributes_of_several_forms_become_one() {
        let mut extended = Extended::default();
        for (key, value) in [
            (&b"LIBARCHIVE.xattr.user.a%20%3Db"[..], &b"AP8K"[..]),
            (b"SCHILY.xattr.user.a =b", b"\0\xff\n"),
            (b"LIBARCHIVE.xattr.user.only", b"aGk"),
            (b"RHT.security.selinux", b"u:r:t:s0"),
            (b"SCHILY.xattr.user.empty", b""),
            (
                b"SCHILY.acl.access",
                b"user::rw-,user:x:r--:5,group::r--,mask::r--,other::---",
            ),
        ] {
            extended.apply(key, value, false).unwrap();
        }
        let mut mode = 0o4777;
        let xattrs = extended.xattrs(&mut mode).unwrap();
        let names: Vec<_> = xattrs
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name))
            .collect();
        assert_eq!(
            names,
            [
                "security.selinux",
                "system.posix_acl_access",
                "user.a =b",
                "user.empty",
                "user.only"
            ]
        );
        assert_eq!(xattrs[0].1, b"u:r:t:s0\0");
        assert_eq!(xattrs[2].1, b"\0\xff\n");
        assert_eq!(xattrs[3].1, b"");
        assert_eq!(xattrs[4].1, b"hi");
        assert_eq!(mode, 0o4640);
    }
}
