//! Names in columns, as `ls` lays them out on a terminal.

/// Lays `widths` out in columns of a line `line` wide, read downwards. Returns the number of rows,
/// and each column's width without the two spaces that follow it.
fn layout(widths: &[usize], line: usize) -> (usize, Vec<usize>) {
    let most = widths.len().min(line / 3).max(1);
    for columns in (2..=most).rev() {
        let rows = widths.len().div_ceil(columns);
        let column_widths: Vec<_> =
            widths.chunks(rows).map(|column| column.iter().copied().max().unwrap_or(0)).collect();
        let total = column_widths.iter().sum::<usize>() + 2 * (column_widths.len() - 1);
        if column_widths.len() == columns && total < line {
            return (rows, column_widths);
        }
    }
    (widths.len(), vec![widths.iter().copied().max().unwrap_or(0)])
}

/// Returns the cells, each with its width, in columns of a line `line` wide.
pub(crate) fn columns(cells: &[(Vec<u8>, usize)], line: usize) -> Vec<u8> {
    let widths: Vec<_> = cells.iter().map(|(_, width)| *width).collect();
    let (rows, column_widths) = layout(&widths, line);
    let mut out = Vec::new();
    for row in 0..rows {
        for (column, column_width) in column_widths.iter().enumerate() {
            let Some((text, width)) = cells.get(column * rows + row) else { break };
            out.extend_from_slice(text);
            if (column + 1) * rows + row < cells.len() {
                out.resize(out.len() + column_width - width + 2, b' ');
            }
        }
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::columns;

    fn check(names: &[&str], line: usize, shown: &str) {
        let cells: Vec<_> = names.iter().map(|name| (name.as_bytes().to_vec(), name.len())).collect();
        assert_eq!(String::from_utf8(columns(&cells, line)).expect("text"), shown);
    }

    #[test]
    fn columns_read_downwards() {
        check(&["a", "b", "c"], 80, "a  b  c\n");
        check(&["aaaa", "b", "cc", "d"], 10, "aaaa  cc\nb     d\n");
        check(&["aaaaaaaaaaaa", "b"], 10, "aaaaaaaaaaaa\nb\n");
        check(&[], 80, "");
    }
}
