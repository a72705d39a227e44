//! [`Table::room`]: how far a caller can write from a byte of a disk on.
//!
//! `mkfs` and `build` call it for a volume that starts at a byte of a disk and has no size. The
//! volume must not reach the next partition, or the table itself.

use std::ops::Range;

use super::Table;

/// The first thing behind a byte of a disk that is not to be overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Border {
    /// Another partition begins.
    Start(u32),
    /// The partition ends that the byte is in.
    End(u32),
    /// A part of the table begins: a header or entries of a GPT, or a boot record.
    Table,
}

impl Table {
    /// Returns the first border at or behind byte `start`, and the byte where it is; `None` if
    /// there is none up to the end of the disk. A byte of the table itself is a border.
    pub fn room(&self, start: u64) -> Option<(u64, Border)> {
        let of_table = self
            .areas
            .iter()
            .filter_map(|area| border(area, start, Border::Table, None));
        let of_partitions = self.partitions.iter().filter_map(|partition| {
            let number = partition.number;
            let range = partition.start_bytes..partition.end();
            border(
                &range,
                start,
                Border::Start(number),
                Some(Border::End(number)),
            )
        });
        // Where a partition ends and another one begins, the end says more.
        of_partitions
            .chain(of_table)
            .min_by_key(|(at, border)| (*at, matches!(border, Border::Start(_))))
    }
}

/// Returns the border that a range is for `start`: `inside` at its end if `start` is in it, or else
/// `behind` at its beginning. Without `inside`, a range around `start` is a border at once.
fn border(
    range: &Range<u64>,
    start: u64,
    behind: Border,
    inside: Option<Border>,
) -> Option<(u64, Border)> {
    match inside {
        _ if range.end <= start => None,
        Some(inside) if range.start <= start => Some((range.end, inside)),
        _ => Some((range.start.max(start), behind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{DiskId, Kind, Partition};

    fn table(areas: &[Range<u64>], partitions: &[(u32, u8, Range<u64>)]) -> Table {
        let partition = |(number, kind, range): &(u32, u8, Range<u64>)| Partition {
            number: *number,
            start_bytes: range.start,
            len_bytes: range.end - range.start,
            held_bytes: range.end - range.start,
            kind: Kind::Mbr(*kind),
            name: None,
            id: None,
        };
        Table {
            id: DiskId::Mbr(0),
            sector_bytes: 512,
            partitions: partitions.iter().map(partition).collect(),
            areas: areas.to_vec(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn a_border_is_the_first_thing_behind() {
        // A primary partition, a gap, a frame with two logical partitions, a gap, a copy.
        let table = table(
            &[0..10, 300..301, 400..401, 900..1000],
            &[
                (1, 0x83, 100..200),
                (4, 0x0f, 300..500),
                (5, 0x83, 310..400),
                (6, 0x83, 410..450),
            ],
        );
        for (start, border) in [
            (0, Some((0, Border::Table))),
            (9, Some((9, Border::Table))),
            (10, Some((100, Border::Start(1)))),
            (100, Some((200, Border::End(1)))),
            (199, Some((200, Border::End(1)))),
            (200, Some((300, Border::Table))),
            (301, Some((310, Border::Start(5)))),
            (310, Some((400, Border::End(5)))),
            (450, Some((500, Border::End(4)))),
            (500, Some((900, Border::Table))),
            (1000, None),
        ] {
            assert_eq!(table.room(start), border, "{start}");
        }
    }

    #[test]
    fn the_nearest_of_overlapping_partitions_counts() {
        let table = table(
            &[],
            &[
                (1, 0x83, 100..300),
                (2, 0x83, 200..250),
                (3, 0x83, 300..310),
            ],
        );
        assert_eq!(table.room(100), Some((200, Border::Start(2))));
        assert_eq!(table.room(220), Some((250, Border::End(2))));
        assert_eq!(table.room(260), Some((300, Border::End(1))));
    }
}
