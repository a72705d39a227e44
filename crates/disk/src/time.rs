//! Timestamps of inodes.
//!
//! `Inode` decodes and encodes its times with it. A time that does not fit becomes the nearest one
//! that does.
//!
//! An inode has 32 bits of seconds, signed, for each of its times. Inodes with room for them have
//! 32 more bits: two extend the seconds upwards, to the year 2446, and 30 are nanoseconds. Times
//! before 1970 exist only with both upper bits clear, so the range is asymmetric: 1901 to 2446.
//!
//! Source: the kernel's `Documentation/filesystems/ext4/inodes.rst`, "Inode Timestamps".

/// Nanoseconds of a second.
const NANOS: u32 = 1_000_000_000;
const EPOCH_MASK: u32 = 0x3;

/// A point in time: seconds since 1970, and nanoseconds after that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    /// The first time that an inode can hold: 1901-12-13 20:45:52.
    pub const MIN: Self = Self {
        seconds: -0x8000_0000,
        nanos: 0,
    };
    /// The last time that an inode can hold: 2446-05-10 22:38:55, if it has the extra bits.
    pub const MAX: Self = Self {
        seconds: 0x3_7fff_ffff,
        nanos: 0,
    };

    /// Returns the time in an inode's field and its extra bits; `extra` is `None` for inodes
    /// without these.
    ///
    /// 30 bits can hold more nanoseconds than a second has; a larger number counts as the last
    /// nanosecond.
    pub fn decode(seconds: u32, extra: Option<u32>) -> Self {
        let low = i64::from(seconds.cast_signed());
        let extra = extra.unwrap_or(0);
        let epochs = i64::from(extra & EPOCH_MASK);
        Self {
            seconds: low + (epochs << 32),
            nanos: (extra >> 2).min(NANOS - 1),
        }
    }

    /// Returns the field and the extra bits for this time, or for the nearest time that an inode
    /// can hold. As in Linux, the first and the last second have no nanoseconds.
    pub fn encode(self) -> (u32, u32) {
        let mut time = self.clamp(Self::MIN, Self::MAX);
        if time.seconds == Self::MIN.seconds {
            time.nanos = 0;
        }
        let [a, b, c, d, ..] = time.seconds.to_le_bytes();
        let low = u32::from_le_bytes([a, b, c, d]);
        // Exact: the difference to the signed low half is a multiple of 2^32 from 0 to 3 * 2^32.
        let epochs = (time.seconds - i64::from(low.cast_signed())) >> 32;
        let epochs = u32::try_from(epochs).unwrap_or(0) & EPOCH_MASK;
        (low, epochs | time.nanos.min(NANOS - 1) << 2)
    }

    /// Returns the field for this time, or for the nearest time that fits, in an inode without
    /// extra bits: until 2038.
    pub fn encode_short(self) -> u32 {
        let seconds = self.seconds.clamp(i32::MIN.into(), i32::MAX.into());
        i32::try_from(seconds).map_or(0, i32::cast_unsigned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the kernel's documentation: extra bits, field, seconds.
    const TABLE: [(u32, u32, i64); 16] = [
        (0, 0x8000_0000, -0x8000_0000),
        (0, 0xffff_ffff, -1),
        (0, 0, 0),
        (0, 0x7fff_ffff, 0x7fff_ffff),
        (1, 0x8000_0000, 0x8000_0000),
        (1, 0xffff_ffff, 0xffff_ffff),
        (1, 0, 0x1_0000_0000),
        (1, 0x7fff_ffff, 0x1_7fff_ffff),
        (2, 0x8000_0000, 0x1_8000_0000),
        (2, 0xffff_ffff, 0x1_ffff_ffff),
        (2, 0, 0x2_0000_0000),
        (2, 0x7fff_ffff, 0x2_7fff_ffff),
        (3, 0x8000_0000, 0x2_8000_0000),
        (3, 0xffff_ffff, 0x2_ffff_ffff),
        (3, 0, 0x3_0000_0000),
        (3, 0x7fff_ffff, 0x3_7fff_ffff),
    ];

    #[test]
    fn documented_table() {
        for (extra, field, seconds) in TABLE {
            let time = Timestamp {
                seconds,
                nanos: 999_999_999,
            };
            let extra = extra | 999_999_999 << 2;
            assert_eq!(Timestamp::decode(field, Some(extra)), time);
            let is_end = [Timestamp::MIN.seconds, Timestamp::MAX.seconds].contains(&seconds);
            assert_eq!(
                time.encode(),
                (field, if is_end { extra & EPOCH_MASK } else { extra })
            );
        }
    }

    #[test]
    fn without_extra_bits() {
        assert_eq!(
            Timestamp::decode(0x8000_0000, None).seconds,
            i64::from(i32::MIN)
        );
        assert_eq!(
            Timestamp {
                seconds: -5,
                nanos: 3
            }
            .encode_short(),
            (-5i32).cast_unsigned()
        );
        assert_eq!(
            Timestamp {
                seconds: 1 << 40,
                nanos: 3
            }
            .encode_short(),
            0x7fff_ffff
        );
    }

    #[test]
    fn out_of_range_is_clamped() {
        assert_eq!(Timestamp::decode(0, Some(!0)).nanos, 999_999_999);
        assert_eq!(
            Timestamp {
                seconds: i64::MIN,
                nanos: 0
            }
            .encode(),
            (0x8000_0000, 0)
        );
        let (field, extra) = Timestamp {
            seconds: i64::MAX,
            nanos: 0,
        }
        .encode();
        assert_eq!(Timestamp::decode(field, Some(extra)), Timestamp::MAX);
    }
}
