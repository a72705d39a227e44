//! Transfer times of a cache line between CPUs, as published for one machine.
//!
//! `caches` takes the time of each transfer from here, and the report names the source. They are no
//! measurements of the machine that runs the lab.

/// Picoseconds.
pub(super) type Picos = u64;

/// The parts of a machine that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latencies {
    /// Picoseconds for a line from a cache on the same socket.
    pub same_socket: Picos,
    /// Picoseconds for a line from a cache on the other socket.
    pub other_socket: Picos,
    /// The number of CPUs of a socket.
    pub cpus_of_socket: usize,
}

impl Latencies {
    /// A machine of two sockets of 128 CPUs, with the latencies of a Xeon of 2019 (Cascade Lake).
    /// Intel's Memory Latency Checker 3.7 measures 55.6 ns for a modified line from a cache on the
    /// same socket. It measures 115.6 ns from the other socket, where that socket's memory has the
    /// line. The FD.io project publishes the figures with its reports (CSIT, "Calibration Data -
    /// Cascadelake"). For an unmodified line on the same socket it has 55.5 ns, so the two are one
    /// here. That machine has 24 cores a socket, and the figures do not show how more cores would
    /// change them.
    pub const PUBLISHED: Self = Self { same_socket: 55_600, other_socket: 115_600, cpus_of_socket: 128 };

    /// The source of the figures.
    pub const SOURCE: &'static str = "Intel Memory Latency Checker 3.7 on a Xeon Cascade Lake of two sockets, published by FD.io CSIT, \
        \"Calibration Data - Cascadelake\": 55.6 ns on a socket, 115.6 ns between two";

    /// Returns the transfer time from one CPU to another.
    pub(super) fn between(&self, one: usize, other: usize) -> Picos {
        match one / self.cpus_of_socket == other / self.cpus_of_socket {
            _ if one == other => 0,
            true => self.same_socket,
            false => self.other_socket,
        }
    }
}
