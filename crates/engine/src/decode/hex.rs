//! Parses bytes from hexadecimal text.

use iotax_node::failure::Failure;

pub(super) fn parse(text: &str, place: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut digits = String::new();
        for word in line.split_whitespace().filter(|word| !word.ends_with(':')) {
            digits.push_str(word.strip_prefix("0x").unwrap_or(word));
        }
        let wrong = |what: &str| Failure::usage(format!("{what}: `{}`", line.trim()), format!("{place}:{}", index + 1));
        if !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong("not hexadecimal"));
        }
        if !digits.len().is_multiple_of(2) {
            return Err(wrong("an odd number of digits"));
        }
        bytes.extend((0..digits.len()).step_by(2).filter_map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_passes_over_offsets_and_comments() {
        assert_eq!(parse("0000: 01 02  # two\n0010: 0x03ff\n\n", "x").unwrap(), [1, 2, 3, 255]);
    }

    #[test]
    fn hex_names_the_line_that_is_wrong() {
        assert_eq!(parse("01\n0g", "dump.hex").unwrap_err().place, "dump.hex:2");
        assert_eq!(parse("012", "dump.hex").unwrap_err().place, "dump.hex:1");
    }
}
