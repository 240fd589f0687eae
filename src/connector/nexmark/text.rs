//! Texts made once, from which those of the rows are taken.

use arrow::array::{StringArray, StringBuilder};

use crate::connector::random::{Stream, below};

/// Bytes of text that texts of rows are parts of.
const POOL_BYTES: usize = 256 << 10;

/// Bids through channels that are named by a number.
const COLD_CHANNELS: u64 = 10_000;
const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];

/// A long text, of which rows have parts.
#[derive(Debug)]
pub(super) struct Pool(String);

impl Pool {
    /// Letters; with `blanks` one character in 13 is a blank.
    pub(super) fn new(stream: Stream, blanks: bool) -> Self {
        let letter = |random: u64| match below(random, 13) {
            0 if blanks => ' ',
            _ => char::from(b'a' + below(random.rotate_left(32), 26) as u8),
        };
        Self((0..POOL_BYTES as u64).map(|index| letter(stream.at(index))).collect())
    }

    /// `length` characters, fewer than the pool has.
    pub(super) fn part(&self, random: u64, length: usize) -> &str {
        let start = below(random, (POOL_BYTES - length) as u64) as usize;
        &self.0[start..start + length]
    }

    /// Words: 3 to `most - 1` characters, less the blanks around.
    pub(super) fn words(&self, random: u64, most: u64) -> &str {
        let length = 3 + below(random.rotate_left(32), most - 3) as usize;
        self.part(random, length).trim_matches(' ')
    }
}

/// Channels and their URLs.
#[derive(Debug)]
pub(super) struct Channels {
    names: StringArray,
    urls: StringArray,
}

impl Channels {
    pub(super) fn new(stream: Stream) -> Self {
        let (mut names, mut urls) = (StringBuilder::new(), StringBuilder::new());
        let hot = HOT_CHANNELS.len() as u64;
        let mut url = String::new();
        for index in 0..hot + COLD_CHANNELS {
            let own = Stream::new(stream.at(index), 0);
            url.clear();
            url.push_str("https://www.nexmark.com/");
            for folder in 0..3 {
                push_name(&mut url, own, folder);
                url.push('/');
            }
            url.push_str("item.htm?query=1");
            match index.checked_sub(hot) {
                None => names.append_value(HOT_CHANNELS[index as usize]),
                Some(number) => {
                    names.append_value(format!("channel-{number}"));
                    // Nine in ten name the channel.
                    if below(own.at(100), 10) > 0 {
                        let id = (number as i32).reverse_bits().unsigned_abs();
                        url.push_str(&format!("&channel_id={id}"));
                    }
                }
            }
            urls.append_value(&url);
        }
        Self { names: names.finish(), urls: urls.finish() }
    }

    /// The channel of a bid: every other one comes through one of four.
    fn choose(random: u64) -> usize {
        let hot = HOT_CHANNELS.len() as u64;
        let index = match random & 1 {
            0 => below(random, hot),
            _ => hot + below(random, COLD_CHANNELS),
        };
        index as usize
    }

    pub(super) fn name(&self, random: u64) -> &str {
        self.names.value(Self::choose(random))
    }

    pub(super) fn url(&self, random: u64) -> &str {
        self.urls.value(Self::choose(random))
    }
}

/// Three or four characters; one in 13 is an underscore.
fn push_name(text: &mut String, stream: Stream, number: u64) {
    let length = 3 + below(stream.at(8 * number), 2);
    for place in 1..=length {
        let random = stream.at(8 * number + place);
        text.push(match below(random, 13) {
            0 => '_',
            _ => char::from(b'a' + below(random.rotate_left(32), 26) as u8),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_pool_have_their_length() {
        let pool = Pool::new(Stream::new(1, 2), true);
        assert_eq!(pool.part(u64::MAX, 100).len(), 100);
        assert_eq!(pool.part(0, 3), &pool.0[..3]);
        let stream = Stream::new(5, 5);
        for row in 0..1_000 {
            let words = pool.words(stream.at(row), 20);
            assert!(words.len() <= 19 && words.trim() == words, "{words}");
        }
        let blanks = pool.0.bytes().filter(|byte| *byte == b' ').count();
        assert!((POOL_BYTES / 14..POOL_BYTES / 12).contains(&blanks), "{blanks}");
        assert!(Pool::new(Stream::new(1, 2), false).0.bytes().all(|byte| byte.is_ascii_lowercase()));
    }

    #[test]
    fn urls_belong_to_channels() {
        let channels = Channels::new(Stream::new(3, 3));
        let stream = Stream::new(9, 9);
        let (mut hot, mut with_id) = (0, 0);
        for row in 0..10_000 {
            let random = stream.at(row);
            let (name, url) = (channels.name(random), channels.url(random));
            assert_eq!(url.split('/').count(), 7, "{url}");
            match name.strip_prefix("channel-") {
                None => hot += usize::from(HOT_CHANNELS.contains(&name) && url.ends_with("?query=1")),
                Some(number) => {
                    let id = number.parse::<i32>().unwrap().reverse_bits().unsigned_abs();
                    with_id += usize::from(url.ends_with(&format!("?query=1&channel_id={id}")));
                }
            }
        }
        assert!((4_800..5_200).contains(&hot), "{hot}");
        assert!((4_300..4_700).contains(&with_id), "{with_id}");
    }
}
