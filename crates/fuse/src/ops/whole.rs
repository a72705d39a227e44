//! The file system as a whole: STATFS.

use extern4_vfs::Result;

use crate::abi::StatfsOut;
use crate::reply::Body;
use crate::request::Request;
use crate::server::{Hear, Server};

impl Server {
    pub(crate) fn statfs(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        self.forget_now(Hear::UntilAsked);
        let location = self.nodes.get(request.header.nodeid)?;
        let stat = self.superblock().fs().statfs_by(location.inode())?;
        body.put(&StatfsOut {
            blocks: stat.blocks,
            bfree: stat.blocks_free,
            bavail: stat.blocks_available,
            files: stat.files,
            ffree: stat.files_free,
            bsize: stat.block_size,
            namelen: stat.name_max,
            frsize: stat.block_size,
            ..StatfsOut::default()
        })
    }
}
