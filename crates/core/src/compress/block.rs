//! Apply an operator to consecutive blocks, each with its own norm.
//!
//! The last block may be shorter. Both constants of every operator get no worse as a vector gets
//! shorter, so they are those of the longest block.

use super::Compressor;

impl Compressor {
    /// The length of the longest block (at least 1).
    pub(super) fn longest_block(&self, dimension: usize) -> usize {
        self.block.unwrap_or(dimension).min(dimension).max(1)
    }

    /// The blocks, each with its first coordinate's place.
    pub(super) fn blocks<'v>(
        &self,
        v: &'v [f64],
    ) -> impl Iterator<Item = (usize, &'v [f64])> + use<'v> {
        let size = self.longest_block(v.len());
        v.chunks(size).enumerate().map(move |(number, block)| (number * size, block))
    }

    /// The lengths of the blocks.
    pub(super) fn block_lengths(&self, dimension: usize) -> impl Iterator<Item = usize> + use<> {
        let size = self.longest_block(dimension);
        (0..dimension).step_by(size).map(move |first| size.min(dimension - first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_the_vector_once() {
        let v: Vec<f64> = (0..10).map(f64::from).collect();
        for size in 1..12 {
            let compressor = Compressor::natural().block(size);
            let mut next = 0;
            for (first, block) in compressor.blocks(&v) {
                assert_eq!((first, block[0]), (next, next as f64));
                next += block.len();
            }
            assert_eq!(next, 10);
            let lengths: Vec<usize> = compressor.block_lengths(10).collect();
            assert_eq!(
                lengths,
                compressor.blocks(&v).map(|(_, block)| block.len()).collect::<Vec<_>>()
            );
        }
        assert_eq!(Compressor::natural().blocks(&[]).count(), 0);
        assert_eq!(Compressor::natural().block_lengths(0).count(), 0);
    }
}
