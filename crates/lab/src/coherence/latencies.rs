//! How long a cache line takes from one CPU to another.

/// Picoseconds.
pub(super) type Picos = u64;

/// A machine, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// Picoseconds from a cache on the same socket.
    pub same_socket: Picos,
    /// From one on the other.
    pub other_socket: Picos,
    /// CPUs of a socket.
    pub cpus_of_socket: usize,
}

impl Latencies {
    /// Two sockets of 128 CPUs, with the latencies of a Xeon of 2019 (Cascade Lake), as Intel's
    /// Memory Latency Checker 3.7 measures them: a modified line from a cache on the same socket
    /// 55.6 ns, from the other socket 115.6 ns where that socket's memory has it. The FD.io project
    /// publishes them with its reports (CSIT, "Calibration Data - Cascadelake"). For an unmodified
    /// line on the same socket it has 55.5 ns, so the two are one here. That machine has 24 cores a
    /// socket: what more of them would do to its latencies is not in the figures.
    pub const PUBLISHED: Self = Self { same_socket: 55_600, other_socket: 115_600, cpus_of_socket: 128 };

    /// Where the figures are from.
    pub const SOURCE: &'static str = "Intel Memory Latency Checker 3.7 on a Xeon Cascade Lake of two sockets, published by FD.io CSIT, \
        \"Calibration Data - Cascadelake\": 55.6 ns on a socket, 115.6 ns between two";

    /// From one CPU to another.
    pub(super) fn between(&self, one: usize, other: usize) -> Picos {
        match one / self.cpus_of_socket == other / self.cpus_of_socket {
            _ if one == other => 0,
            true => self.same_socket,
            false => self.other_socket,
        }
    }
}
