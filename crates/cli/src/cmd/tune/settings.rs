//! The values of `tune`, in the words of tune2fs(8).
//!
//! clap parses the values with it. A word that tune2fs does not know is a usage error.

use std::time::{SystemTime, UNIX_EPOCH};

use extern4::quota::Kind;
use extern4::tune::{
    Feature, Features, MountOptions, QuotaChange, addable_features, removable_features,
};

/// Changes of the features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FeatureChange {
    /// The features to add.
    pub(super) with: Features,
    /// The features to take away.
    pub(super) without: Features,
}

/// The bits of the journal's mode among the default mount options.
const JOURNAL_MODE: u32 = 0x60;

/// The names of default mount options and their bits.
const MOUNT_OPTIONS: [(&str, u32); 12] = [
    ("debug", 0x1),
    ("bsdgroups", 0x2),
    ("user_xattr", 0x4),
    ("acl", 0x8),
    ("uid16", 0x10),
    ("journal_data", 0x20),
    ("journal_data_ordered", 0x40),
    ("journal_data_writeback", 0x60),
    ("nobarrier", 0x100),
    ("block_validity", 0x200),
    ("discard", 0x400),
    ("nodelalloc", 0x800),
];

/// Reads `[^]OPTION[,...]`.
pub(super) fn mount_options(text: &str) -> Result<MountOptions, String> {
    let mut options = MountOptions::default();
    for word in text.split(',') {
        let (clears, name) = word
            .strip_prefix('^')
            .map_or((false, word), |name| (true, name));
        let bits = MOUNT_OPTIONS.iter().find(|(known, _)| *known == name);
        let (_, bits) = *bits.ok_or_else(|| format!("{name} is no default mount option"))?;
        let mask = if bits & JOURNAL_MODE == 0 {
            bits
        } else {
            JOURNAL_MODE
        };
        options.clear |= mask;
        options.set = options.set & !mask | if clears { 0 } else { bits };
    }
    Ok(options)
}

/// Returns the names of the features that can be added, or with `clears` be taken away.
pub(crate) fn feature_names(clears: bool) -> Vec<&'static str> {
    if clears {
        removable_features().collect()
    } else {
        addable_features().collect()
    }
}

/// Reads `[^]FEATURE[,...]`. The last word about a feature counts.
pub(super) fn features(text: &str) -> Result<FeatureChange, String> {
    let mut with = [0; 3];
    let mut without = [0; 3];
    for word in text.split(',') {
        let (clears, name) = word
            .strip_prefix('^')
            .map_or((false, word), |name| (true, name));
        let feature = Feature::from_name(name).ok_or_else(|| format!("{name} is no feature"))?;
        let known = feature_names(clears);
        if !known.contains(&feature.to_string().as_str()) {
            let why = if clears {
                "cannot be taken away; these can, if no file uses them"
            } else {
                "cannot be added; these can"
            };
            return Err(format!("{name} {why}: {}", known.join(", ")));
        }
        let set = feature.set() as usize;
        let mask = feature.mask();
        (with[set], without[set]) = (with[set] & !mask, without[set] & !mask);
        (if clears { &mut without } else { &mut with })[set] |= mask;
    }
    let features =
        |[compat, incompat, ro_compat]: [u32; 3]| Features::from_bits(compat, incompat, ro_compat);
    Ok(FeatureChange {
        with: features(with),
        without: features(without),
    })
}

/// Reads `[^]KIND[,...]` with `usrquota`, `grpquota` and `prjquota`, whose `quota` may be left out.
/// The last word about a kind counts.
pub(super) fn quotas(text: &str) -> Result<QuotaChange, String> {
    let mut change = QuotaChange::default();
    for word in text.split(',') {
        let (clears, name) = word
            .strip_prefix('^')
            .map_or((false, word), |name| (true, name));
        let kind = match name {
            "usr" | "usrquota" => Kind::User,
            "grp" | "grpquota" => Kind::Group,
            "prj" | "prjquota" => Kind::Project,
            _ => {
                return Err(format!(
                    "'{name}' is none of usrquota, grpquota and prjquota"
                ));
            }
        };
        change.with.retain(|other| *other != kind);
        change.without.retain(|other| *other != kind);
        (if clears {
            &mut change.without
        } else {
            &mut change.with
        })
        .push(kind);
    }
    Ok(change)
}

/// Reads an interval between checks in seconds: days, or with d, w or m days, weeks or months.
pub(super) fn interval(text: &str) -> Result<u32, String> {
    const DAY: u32 = 86_400;
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'd') => (&text[..text.len() - 1], DAY),
        Some(b'w') => (&text[..text.len() - 1], 7 * DAY),
        Some(b'm') => (&text[..text.len() - 1], 30 * DAY),
        _ => (text, DAY),
    };
    let number = digits
        .parse::<u32>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    number.ok_or_else(|| "write it as 30, 30d, 4w or 6m".to_owned())
}

/// Reads a number of mounts between checks; 0 and -1 are for none.
pub(super) fn max_mounts(text: &str) -> Result<u16, String> {
    match text.parse::<i16>() {
        Ok(number @ 1..) => Ok(number.unsigned_abs()),
        // As tune2fs stores it.
        Ok(0 | -1) => Ok(u16::MAX),
        _ => Err("between 1 and 32767, or -1 for no checks".to_owned()),
    }
}

/// Reads the time of the last check: `now`, or `YYYYMMDD[HH[MM[SS]]]`.
pub(super) fn checked(text: &str) -> Result<u64, String> {
    if text == "now" {
        return Ok(SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs()));
    }
    let wrong = || "write it as now or 20240229120000".to_owned();
    if !matches!(text.len(), 8 | 10 | 12 | 14) || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", format!("{text:0<14}"));
    let time = time.and_then(|time| time.to_zoned(jiff::tz::TimeZone::system()));
    time.ok()
        .and_then(|time| u64::try_from(time.timestamp().as_second()).ok())
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::{Features, Kind, checked, features, interval, max_mounts, mount_options, quotas};

    #[test]
    fn values_are_those_of_tune2fs() {
        assert_eq!(interval("0"), Ok(0));
        assert_eq!(interval("2w"), Ok(14 * 86_400));
        assert!(interval("x").is_err() && interval("60000m").is_err());
        assert_eq!((max_mounts("20"), max_mounts("-1")), (Ok(20), Ok(u16::MAX)));
        assert!(max_mounts("-2").is_err() && max_mounts("40000").is_err());
        let options = mount_options("acl,^user_xattr,journal_data_ordered").expect("options");
        assert_eq!((options.set, options.clear), (0x48, 0x6c));
        assert!(mount_options("nonsense").is_err());
        let change = features("large_dir,^large_file,large_file,^dir_nlink").expect("features");
        let names = |features: Features| features.to_string();
        assert_eq!(
            (&*names(change.with), &*names(change.without)),
            ("large_dir large_file", "dir_nlink")
        );
        for bad in ["^large_dir", "flex_bg", "nonsense", "^", ""] {
            assert!(features(bad).is_err(), "{bad}");
        }
        let change = quotas("usr,^grpquota,prjquota,^usrquota").expect("quotas");
        assert_eq!(
            (change.with, change.without),
            (vec![Kind::Project], vec![Kind::Group, Kind::User])
        );
        assert!(quotas("user").is_err() && quotas("").is_err());
        assert!(checked("now").is_ok() && checked("20240229").is_ok());
        assert!(checked("2024").is_err() && checked("20240230").is_err());
    }
}
