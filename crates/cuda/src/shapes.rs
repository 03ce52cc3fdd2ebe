//! Which kernel takes a step of a net, and how it is cut into blocks and threads.

use crate::args::{Conv, Dense, Norm, Pass, TABLE};
use crate::board::MOST_SHARED;

/// A kernel that is to be started: its arguments, blocks, threads and shared bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut<T> {
    pub(crate) arguments: T,
    pub(crate) kernel: &'static str,
    pub(crate) blocks: (u32, u32),
    pub(crate) threads: (u32, u32),
}

/// Threads of a block, at most.
const THREADS: u32 = 256;
/// Rows and columns of a tile.
const PAIR: u32 = 2;
const STRIP: u32 = 4;
/// So many tiles of eight output channels fill a GPU.
const MANY_TILES: u32 = if cfg!(test) { 500 } else { 60_000 };
/// So many blocks fill a GPU: only beyond does a block take several samples.
const FEW_BLOCKS: u32 = 240;
/// Shared bytes of a block of which several fit in a multiprocessor.
const SHARED: u32 = 55 << 10;

/// The same number in parts that are as equal as can be, each at most this.
fn parts(all: u32, most: u32) -> u32 {
    let most = most.clamp(1, all.max(1));
    all.max(1).div_ceil(all.max(1).div_ceil(most))
}

/// From a row of so many numbers to the next: fours of eight rows lie in different banks.
fn spread(numbers: u32) -> u32 {
    let fours = numbers.div_ceil(4);
    4 * (fours + u32::from(fours.is_multiple_of(2)))
}

/// How many threads of a warp copy a row of so many numbers, as a power of two.
fn lanes(width: u32, fours: bool) -> u32 {
    let copies = if fours && width.is_multiple_of(4) { width / 4 } else { width };
    copies.next_power_of_two().min(32).ilog2()
}

/// A convolution, or the slopes of its input, by tiles; `None`: there is no kernel for its window.
pub(crate) fn tiles(conv: Conv, back: bool) -> Option<Cut<Conv>> {
    let (side, stride, half) = (conv.kernel, conv.stride, (conv.kernel - 1) / 2);
    let (outputs, inputs, rows, columns, width) = match back {
        false => (conv.outputs, conv.inputs, conv.rows, conv.columns, conv.width),
        true => (conv.inputs, conv.outputs, conv.height, conv.width, conv.columns),
    };
    // eight output channels a thread where so few threads are enough
    let eights = columns.div_ceil(STRIP) * rows.div_ceil(PAIR) * (outputs / 8);
    let many = conv.pass.samples.saturating_mul(eights) >= MANY_TILES;
    let (kernel, each_thread) = match (side, stride, back) {
        (5, 1, false) => ("conv_5_1", 2),
        (3, 1, false) if many => ("conv_3_1_many", 8),
        (3, 1, false) => ("conv_3_1", 4),
        (3, 2, false) => ("conv_3_2", 4),
        (1, 1, false) => ("conv_1_1", 4),
        (1, 2, false) => ("conv_1_2", 4),
        (5, 1, true) => ("conv_slopes_5_1", 2),
        (3, 1, true) if many => ("conv_slopes_3_1_many", 8),
        (3, 1, true) => ("conv_slopes_3_1", 4),
        (3, 2, true) => ("conv_slopes_3_2", 4),
        (1, 1, true) => ("conv_slopes_1_1", 4),
        (1, 2, true) => ("conv_slopes_1_2", 4),
        _ => return None,
    };
    let most = if each_thread == 8 { THREADS / 2 } else { THREADS };
    // every second row and column of the slopes matters to a number, by a rule that is compiled
    let sparse = back && stride > 1;
    let pooled = back && conv.tile > 1;
    if (side < 5 && conv.pad != half) || (sparse && pooled) || (back && conv.pad >= side) {
        return None;
    }
    let (strips, all) = (columns.div_ceil(STRIP), outputs.div_ceil(each_thread));
    let (mut pairs, mut groups) = (rows.div_ceil(PAIR), all);
    while strips * pairs * groups > most {
        match (pairs * strips > 64 && pairs > 1, groups > 1) {
            (false, true) => groups = parts(all, groups - 1),
            _ if pairs > 1 => pairs = pairs.div_ceil(2),
            _ => return None,
        }
    }
    let tiles = strips * pairs * groups;
    let (band, chunk) = (pairs * PAIR, (groups * each_thread).min(outputs));
    let cuts = rows.div_ceil(band) * outputs.div_ceil(chunk);
    let Pass { samples, each, .. } = conv.pass;
    let group = parts(each, (most / tiles).min(samples * cuts / FEW_BLOCKS));
    let (down, deep) = match sparse {
        true => (PAIR / stride, (PAIR - 1 + half) / stride + 1),
        false => (PAIR * stride, stride * (PAIR - 1) + side),
    };
    let (right, broad) = match sparse {
        true => (STRIP / stride, (STRIP - 1 + half) / stride + 1),
        false => (STRIP * stride, stride * (STRIP - 1) + side),
    };
    let tall = down * (pairs - 1) + deep;
    // where images start in their rows, and where the first tile does
    let (margin, lone) = match side {
        5 => (if back { side - 1 - conv.pad } else { conv.pad }, 0),
        3 if !sparse => (4, 3),
        _ => (0, 0),
    };
    let least = (right * (strips - 1) + lone + broad).max(margin + width).next_multiple_of(4);
    // the first tiles, which one warp reads, lie in different banks
    let banks = |pitch: &u32| {
        let at = |k: u32| (k / strips * down * pitch + k % strips * right) / 4 % 8;
        (0..8).map(at).fold(0u32, |seen, bank| seen | 1 << bank).count_ones()
    };
    let pitches = [least, least + 4, least + 8, least + 12];
    let pitch = pitches.into_iter().max_by_key(|pitch| (banks(pitch), u32::MAX - pitch));
    let (pitch, wide) = (pitch.unwrap_or(least), spread(chunk));
    let channel = 4 * (group * tall * pitch + side * side * wide);
    let fit = if channel <= SHARED { SHARED / channel } else { MOST_SHARED as u32 / channel };
    if fit == 0 {
        return None;
    }
    let slab = parts(inputs, fit);
    if pooled && slab.saturating_mul(conv.rows * conv.columns) / 4 >= 1 << 20 {
        return None; // the kernel divides such numbers by multiplying
    }
    let abreast = lanes(width, side < 5);
    let arguments = Conv { group, band, slab, chunk, pitch, wide, abreast, ..conv };
    let blocks = (samples / each * each.div_ceil(group), cuts);
    let threads = ((group * tiles).next_multiple_of(32), slab * channel);
    Some(Cut { arguments, kernel, blocks, threads })
}

/// Gradients of the weights of a convolution that was not pooled, input channels in lanes; `None`:
/// there is no kernel for its window.
pub(crate) fn sheets(conv: Conv) -> Option<Cut<Conv>> {
    if conv.tile > 1 || conv.pad != (conv.kernel - 1) / 2 {
        return None;
    }
    let slab = parts(conv.inputs, 64);
    let rounds = slab.div_ceil(8);
    let few = 8 * rounds * conv.outputs.div_ceil(4) < 128;
    let (kernel, each_thread) = match (conv.kernel, conv.stride) {
        (3, 1) if few => ("conv_weights_3_1_few", 2),
        (3, 1) => ("conv_weights_3_1", 4),
        (3, 2) => ("conv_weights_3_2", 4),
        (1, 1) => ("conv_weights_1_1", 4),
        (1, 2) => ("conv_weights_1_2", 4),
        _ => return None,
    };
    // four groups of output channels a warp
    let fours = conv.outputs.div_ceil(4 * each_thread);
    let fours = parts(fours, THREADS / (32 * rounds));
    let chunk = (4 * fours * each_thread).min(conv.outputs);
    let across = conv.columns.next_multiple_of(4);
    let (margin, lone) = if conv.kernel == 3 { (4, 3) } else { (0, 0) };
    let reach = conv.stride * (across - 4) + lone + conv.stride * 3 + conv.kernel;
    let pitch = reach.max(margin + conv.width).next_multiple_of(4);
    let bytes = |band: u32| {
        let tall = conv.stride * (band - 1) + conv.kernel;
        4 * (slab * spread(tall * pitch) + chunk * spread(band * across))
    };
    let mut band = conv.rows;
    while band > 1 && bytes(band) > SHARED {
        band = band.div_ceil(2);
    }
    if bytes(band) > MOST_SHARED as u32 {
        return None;
    }
    let (abreast, wide) = (lanes(conv.width, true), lanes(conv.columns, true));
    let arguments = Conv { slab, chunk, band, pitch, abreast, wide, turned: 1, ..conv };
    let blocks = (conv.pass.samples, conv.outputs.div_ceil(chunk) * conv.inputs.div_ceil(slab));
    Some(Cut { arguments, kernel, blocks, threads: (32 * rounds * fours, bytes(band)) })
}

/// Gradients of the weights of any convolution whose image fits in shared memory.
pub(crate) fn squares(conv: Conv) -> Option<Cut<Conv>> {
    let (tall, broad) = (conv.height + 2 * conv.pad, conv.width + 2 * conv.pad);
    let squares = conv.rows / conv.tile * (conv.columns / conv.tile);
    // kernels of side 5 of some channels lie in different banks, if there is room
    let above = |least: u32, bank: u32| least + (bank + 32 - least % 32) % 32;
    let pitch = above(broad, 6);
    let wide = above(tall * pitch, 1);
    let roomy = conv.inputs.saturating_mul(wide) <= MOST_SHARED as u32 / 8;
    let (pitch, wide) = if roomy { (pitch, wide) } else { (broad, tall * broad) };
    let fixed = conv.inputs.saturating_mul(wide);
    if fixed >= MOST_SHARED as u32 {
        return None;
    }
    let fixed = fixed.next_multiple_of(4);
    let left = (MOST_SHARED as u32 / 4).saturating_sub(fixed);
    let chunk = (left / (2 * squares).max(1)).min(conv.outputs);
    if chunk == 0 {
        return None;
    }
    let rows = conv.inputs * conv.kernel;
    let abreast = match conv.kernel {
        side @ (3 | 5) if chunk * rows >= 128 => side,
        _ => 1,
    };
    let biases = if conv.bias == TABLE { 0 } else { chunk };
    let tasks = chunk * rows * conv.kernel / abreast + biases;
    let threads = tasks.next_multiple_of(32).clamp(64, 512);
    Some(Cut {
        arguments: Conv {
            abreast,
            chunk,
            pitch,
            wide,
            group: lanes(conv.width, false),
            turned: 0,
            ..conv
        },
        kernel: "conv_weights_staged",
        blocks: (conv.pass.samples, conv.outputs.div_ceil(chunk)),
        threads: (threads, 4 * (fixed + 2 * squares * chunk)),
    })
}

/// A dense layer.
pub(crate) fn dense(dense: Dense) -> Cut<Dense> {
    let Pass { samples, each, .. } = dense.pass;
    let (kernel, rows) = if each <= 8 { ("dense_8", 8) } else { ("dense_32", 32) };
    let chunk = parts(dense.outputs, THREADS / 8).next_multiple_of(4);
    let most = (70 << 10) / (4 * (rows + chunk));
    let slab = parts(dense.inputs, most - 8).next_multiple_of(4);
    let pitch = spread(slab);
    Cut {
        arguments: Dense { rows, chunk, slab, pitch, ..dense },
        kernel,
        blocks: (samples / each, each.div_ceil(rows) * dense.outputs.div_ceil(chunk)),
        threads: (8 * chunk, 4 * (rows + chunk) * pitch),
    }
}

/// Slopes of its inputs.
pub(crate) fn dense_slopes(dense: Dense) -> Cut<Dense> {
    let Pass { samples, each, .. } = dense.pass;
    let rows = each.next_multiple_of(4).min(if each <= 8 { 8 } else { 16 });
    let most = (70 << 10) / (4 * (rows + 128));
    let slab = parts(dense.outputs, most - 4).next_multiple_of(4);
    Cut {
        arguments: Dense { rows, slab, pitch: slab, ..dense },
        kernel: "dense_slopes",
        blocks: (samples / each, each.div_ceil(rows) * dense.inputs.div_ceil(128)),
        threads: (32 * rows, 4 * (rows + 128) * slab),
    }
}

/// Filter response normalisation with all numbers of some channels in shared memory, forth or back;
/// `None`: a channel has too many.
pub(crate) fn filters(norm: Norm, back: bool) -> Option<Cut<Norm>> {
    let pitch = spread(norm.area);
    let channel = 4 * (if back { 2 * pitch } else { pitch } + 1);
    if norm.groups > 0 || channel as usize > MOST_SHARED {
        return None;
    }
    let chunk = parts(norm.channels, (SHARED / channel).min(if back { 4 } else { 8 }));
    let chunk =
        if norm.area < 512 { parts(norm.channels, (SHARED / channel).min(16)) } else { chunk };
    Some(Cut {
        arguments: Norm { chunk, pitch, ..norm },
        kernel: if back { "norm_filters_slopes" } else { "norm_filters" },
        blocks: (norm.pass.samples, norm.channels.div_ceil(chunk)),
        threads: (THREADS, chunk * channel),
    })
}
