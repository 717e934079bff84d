//! A reader of received bytes that never panics. Missing bytes give `Short`.

/// There are fewer bytes than the field requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short;

/// Reads fields from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

macro_rules! fields {
    ($($name:ident $kind:ty, $from:ident;)*) => {$(
        pub fn $name(&mut self) -> Result<$kind, Short> {
            Ok(<$kind>::$from(self.array()?))
        }
    )*};
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Number of bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Short> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len()).ok_or(Short)?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    pub fn skip(&mut self, count: usize) -> Result<(), Short> {
        self.take(count).map(|_| ())
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, Short> {
        Ok(self.array::<1>()?[0])
    }

    fields! {
        u16_be u16, from_be_bytes;
        u32_be u32, from_be_bytes;
        u64_be u64, from_be_bytes;
        u16_le u16, from_le_bytes;
        u32_le u32, from_le_bytes;
        u64_le u64, from_le_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fields_in_order_and_stops_short() {
        let mut reader = Reader::new(&[1, 0, 2, 3, 0, 0, 0, 9]);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u16_be(), Ok(2));
        assert_eq!(reader.u32_le(), Ok(3));
        assert_eq!(reader.u16_be(), Err(Short));
        assert_eq!(reader.take(1), Ok(&[9][..]));
        assert_eq!(reader.take(usize::MAX), Err(Short));
    }
}
