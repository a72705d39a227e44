//! The options of `-E` and `-J`.
//!
//! clap calls the parsers when `mkfs` reads its arguments. A word that mke2fs knows and this
//! program does not is refused with a reason.

use extern4_mkfs::{JournalSize, Length, QuotaKind};

use crate::new_volume::size::{self, Size};
use crate::uuid_option::{Uuid, uuid};

/// The options of `-E`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extended {
    pub(crate) hash_seed: Option<Uuid>,
    pub(crate) root_owner: Option<(u32, u32)>,
    pub(crate) root_perms: Option<u16>,
    pub(crate) stride: u16,
    pub(crate) stripe_width: u32,
    pub(crate) resize_limit: Option<Length>,
    pub(crate) backup_superblocks: Option<u32>,
    pub(crate) mmp_interval: Option<u16>,
    pub(crate) mount_options: Option<String>,
    pub(crate) quota: Option<Vec<QuotaKind>>,
    /// Whether `encoding=` asks for the feature `casefold`.
    pub(crate) casefold: bool,
    pub(crate) strict_encoding: Option<bool>,
    pub(crate) orphan_file_size: Option<Length>,
    pub(crate) packed_metadata: bool,
    pub(crate) is_test: bool,
    pub(crate) keep_allocated: bool,
    pub(crate) no_copy_xattrs: bool,
    /// The byte of the file or device where the volume is to start.
    pub(crate) offset: Option<u64>,
}

/// The options of `-J`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalOptions {
    pub(crate) size: Option<JournalSize>,
    pub(crate) fast_commit_kib: Option<u32>,
    pub(crate) location: Option<Length>,
    /// The external journal: a path, `UUID=` or `LABEL=`.
    pub(crate) device: Option<String>,
}

/// The words of a list, each with its value if it has one.
fn words(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split(',')
        .filter(|word| !word.is_empty())
        .map(|word| match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        })
}

fn number<T: std::str::FromStr>(name: &str, value: Option<&str>) -> Result<T, String> {
    let value = value.ok_or_else(|| format!("{name} needs a number: {name}=N"))?;
    value
        .parse()
        .map_err(|_| format!("{name}={value}: that is no number, or too large"))
}

/// A number of blocks, or of bytes with a unit.
fn length(name: &str, value: Option<&str>) -> Result<Length, String> {
    let value = value.ok_or_else(|| format!("{name} needs a size: {name}=N"))?;
    match size::parse(value).map_err(|reason| format!("{name}={value}: {reason}"))? {
        Size::Bytes(bytes) => Ok(Length::Bytes(bytes)),
        Size::Number(blocks) => Ok(Length::Blocks(blocks)),
    }
}

/// A word that is on without a value, and else by its number.
fn is_on(name: &str, value: Option<&str>) -> Result<bool, String> {
    Ok(value.is_none() || number::<u8>(name, value)? != 0)
}

/// Checks the words of one `-E`.
pub(crate) fn checked(text: &str) -> Result<String, String> {
    parse(text).map(|_| text.to_owned())
}

/// Checks the words of one `-J`.
pub(crate) fn checked_journal(text: &str) -> Result<String, String> {
    journal(text).map(|_| text.to_owned())
}

/// Reads the words of all `-E`, joined by commas.
pub(crate) fn parse(text: &str) -> Result<Extended, String> {
    let mut extended = Extended::default();
    for (name, value) in words(text) {
        match name {
            "hash_seed" => extended.hash_seed = Some(uuid(value.unwrap_or(""))?),
            "root_owner" => extended.root_owner = Some(owner(value)?),
            "root_perms" => {
                let mode = value.and_then(|mode| u16::from_str_radix(mode, 8).ok());
                let mode = mode.filter(|mode| *mode <= 0o7777);
                extended.root_perms = Some(mode.ok_or("write it as root_perms=0755")?);
            }
            "stride" => extended.stride = number(name, value)?,
            "stripe_width" | "stripe-width" => extended.stripe_width = number(name, value)?,
            "resize" => extended.resize_limit = Some(length(name, value)?),
            "num_backup_sb" => match number(name, value)? {
                count @ 0..=2 => extended.backup_superblocks = Some(count),
                count => return Err(format!("num_backup_sb={count}: 0, 1 and 2 are possible")),
            },
            "mmp_update_interval" => extended.mmp_interval = Some(number(name, value)?),
            "mount_opts" => extended.mount_options = Some(value.unwrap_or("").to_owned()),
            "quotatype" => extended.quota = Some(quota_kinds(value)?),
            "encoding" => match value {
                Some("utf8" | "utf8-12.1") => extended.casefold = true,
                _ => return Err("write it as encoding=utf8, the only one that there is".to_owned()),
            },
            "encoding_flags" => match value {
                Some("strict") => extended.strict_encoding = Some(true),
                Some("nostrict") => extended.strict_encoding = Some(false),
                _ => return Err("write it as encoding_flags=strict or nostrict".to_owned()),
            },
            "orphan_file_size" => extended.orphan_file_size = Some(length(name, value)?),
            "packed_meta_blocks" => extended.packed_metadata = is_on(name, value)?,
            "test_fs" => extended.is_test = true,
            "no_copy_xattrs" => extended.no_copy_xattrs = true,
            "offset" => extended.offset = Some(number(name, value)?),
            "discard" => extended.keep_allocated = false,
            "nodiscard" => extended.keep_allocated = true,
            "desc_size" => match number::<u16>(name, value)? {
                64 => {}
                size => {
                    return Err(format!(
                        "desc_size={size}: descriptors have 64 bytes with 64bit, else 32"
                    ));
                }
            },
            // Tables and journal are zeroed at once by the file system below or by the device,
            // without writing them.
            "lazy_itable_init" | "lazy_journal_init" | "assume_storage_prezeroed" => {
                is_on(name, value)?;
            }
            "root_selinux" => {
                return Err(
                    "setfattr -n security.selinux sets the context of the new volume's root"
                        .to_owned(),
                );
            }
            "android_sparse" => {
                return Err("img2simg makes a sparse image of the new volume".to_owned());
            }
            _ => return Err(format!("'{name}' is not supported")),
        }
    }
    Ok(extended)
}

/// The kinds of quota in a list with colons.
fn quota_kinds(value: Option<&str>) -> Result<Vec<QuotaKind>, String> {
    let kind = |word: &str| match word {
        "usrquota" => Ok(QuotaKind::User),
        "grpquota" => Ok(QuotaKind::Group),
        "prjquota" => Ok(QuotaKind::Project),
        _ => Err(format!(
            "quotatype: '{word}' is none of usrquota, grpquota and prjquota"
        )),
    };
    let list = value.ok_or("write it as quotatype=usrquota:grpquota")?;
    list.split(':')
        .filter(|word| !word.is_empty())
        .map(kind)
        .collect()
}

/// `UID:GID`; without a value, the caller's.
fn owner(value: Option<&str>) -> Result<(u32, u32), String> {
    let Some(text) = value else {
        return Ok((
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        ));
    };
    let (uid, gid) = text
        .split_once(':')
        .ok_or("write it as root_owner=UID:GID")?;
    Ok((
        number("root_owner", Some(uid))?,
        number("root_owner", Some(gid))?,
    ))
}

pub(crate) fn journal(text: &str) -> Result<JournalOptions, String> {
    let mut options = JournalOptions::default();
    for (name, value) in words(text) {
        match name {
            "size" => options.size = Some(JournalSize::Mebibytes(number(name, value)?)),
            "device" => options.device = Some(value.ok_or("write it as device=PATH")?.to_owned()),
            "location" => options.location = Some(length(name, value)?),
            "fast_commit_size" => options.fast_commit_kib = Some(number(name, value)?),
            _ => return Err(format!("'{name}' is not supported")),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let extended =
            parse("stride=16,stripe_width=64,root_owner=7:8,lazy_itable_init=0").unwrap();
        assert_eq!(
            (extended.stride, extended.stripe_width, extended.root_owner),
            (16, 64, Some((7, 8)))
        );
        assert_eq!(
            journal("size=64").unwrap().size,
            Some(JournalSize::Mebibytes(64))
        );
        assert_eq!(
            parse("resize=9,discard,nodiscard,resize=1M")
                .unwrap()
                .resize_limit,
            Some(Length::Bytes(1 << 20))
        );
        assert_eq!(
            parse("root_perms=01777,packed_meta_blocks")
                .unwrap()
                .root_perms,
            Some(0o1777)
        );
        assert!(
            !parse("packed_meta_blocks=0,nodiscard,discard")
                .unwrap()
                .keep_allocated
        );
        assert_eq!(
            journal("location=7,location=1K").unwrap().location,
            Some(Length::Bytes(1024))
        );
        for text in [
            "stride",
            "stride=x",
            "num_backup_sb=3",
            "packed_meta_blocks=x",
            "root_owner=7",
            "root_perms=8",
            "encoding=latin1",
            "desc_size=128",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(
            journal("device=UUID=7").unwrap().device.as_deref(),
            Some("UUID=7")
        );
        assert!(journal("device").is_err() && journal("location").is_err());
    }
}
