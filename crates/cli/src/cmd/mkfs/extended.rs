//! The options of `-E` and `-J`.
//!
//! clap calls the parsers when `mkfs` reads its arguments. A word that mke2fs knows and this
//! program does not is refused with a reason.

use extern4_mkfs::{JournalSize, QuotaKind};

use super::{Uuid, uuid};

/// The options of `-E`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extended {
    pub(crate) hash_seed: Option<[u8; 16]>,
    pub(crate) root_owner: Option<(u32, u32)>,
    pub(crate) stride: u16,
    pub(crate) stripe_width: u32,
    pub(crate) resize_limit: Option<u64>,
    pub(crate) backup_superblocks: Option<u32>,
    pub(crate) mmp_interval: Option<u16>,
    pub(crate) mount_options: Option<String>,
    pub(crate) quota: Option<Vec<QuotaKind>>,
}

/// The options of `-J`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalOptions {
    pub(crate) size: Option<JournalSize>,
    pub(crate) fast_commit_kib: Option<u32>,
    /// The external journal: a path, `UUID=` or `LABEL=`.
    pub(crate) device: Option<String>,
}

/// The words of a list, each with its value if it has one.
fn words(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split(',').filter(|word| !word.is_empty()).map(|word| match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    })
}

fn number<T: std::str::FromStr>(name: &str, value: Option<&str>) -> Result<T, String> {
    let value = value.ok_or_else(|| format!("{name} needs a number: {name}=N"))?;
    value.parse().map_err(|_| format!("{name}={value}: that is no number, or too large"))
}

pub(crate) fn parse(text: &str) -> Result<Extended, String> {
    let mut extended = Extended::default();
    for (name, value) in words(text) {
        match name {
            "hash_seed" => match uuid(value.unwrap_or(""))? {
                Uuid::Exactly(seed) => extended.hash_seed = Some(seed),
                Uuid::Random => extended.hash_seed = None,
            },
            "root_owner" => extended.root_owner = Some(owner(value)?),
            "stride" => extended.stride = number(name, value)?,
            "stripe_width" | "stripe-width" => extended.stripe_width = number(name, value)?,
            "resize" => extended.resize_limit = Some(number(name, value)?),
            "num_backup_sb" => match number(name, value)? {
                count @ 0..=2 => extended.backup_superblocks = Some(count),
                count => return Err(format!("num_backup_sb={count}: 0, 1 and 2 are possible")),
            },
            "mmp_update_interval" => extended.mmp_interval = Some(number(name, value)?),
            "mount_opts" => extended.mount_options = Some(value.unwrap_or("").to_owned()),
            "quotatype" => extended.quota = Some(quota_kinds(value)?),
            // Tables and journal are zeroed at once by the file system below or by the device,
            // without writing them.
            "lazy_itable_init"
            | "lazy_journal_init"
            | "discard"
            | "nodiscard"
            | "assume_storage_prezeroed" => {}
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
        _ => Err(format!("quotatype: '{word}' is none of usrquota, grpquota and prjquota")),
    };
    let list = value.ok_or("write it as quotatype=usrquota:grpquota")?;
    list.split(':').filter(|word| !word.is_empty()).map(kind).collect()
}

/// `UID:GID`; without a value, those of the caller.
fn owner(value: Option<&str>) -> Result<(u32, u32), String> {
    let Some(text) = value else {
        return Ok((rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()));
    };
    let (uid, gid) = text.split_once(':').ok_or("write it as root_owner=UID:GID")?;
    Ok((number("root_owner", Some(uid))?, number("root_owner", Some(gid))?))
}

pub(crate) fn journal(text: &str) -> Result<JournalOptions, String> {
    let mut options = JournalOptions::default();
    for (name, value) in words(text) {
        match name {
            "size" => options.size = Some(JournalSize::Mebibytes(number(name, value)?)),
            "device" => options.device = Some(value.ok_or("write it as device=PATH")?.to_owned()),
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
        let extended = parse("stride=16,stripe_width=64,root_owner=7:8,lazy_itable_init=0").unwrap();
        assert_eq!((extended.stride, extended.stripe_width, extended.root_owner), (16, 64, Some((7, 8))));
        assert_eq!(journal("size=64").unwrap().size, Some(JournalSize::Mebibytes(64)));
        for text in ["stride", "stride=x", "num_backup_sb=3", "packed_meta_blocks=1", "root_owner=7"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(journal("device=UUID=7").unwrap().device.as_deref(), Some("UUID=7"));
        assert!(journal("device").is_err() && journal("location=7").is_err());
    }
}
