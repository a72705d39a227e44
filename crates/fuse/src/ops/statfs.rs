//! STATFS: the space and the limits of the file system.
//!
//! `Server` calls the handler. It first handles waiting FORGETs, so the answer counts the space of
//! removed files as free.

use extern4_vfs::Result;

use crate::abi::StatfsOut;
use crate::forgets::Drain;
use crate::reply::Body;
use crate::request::Request;
use crate::server::Server;

impl Server {
    pub(crate) fn statfs(&self, request: &Request<'_>, body: &mut Body<'_>) -> Result<()> {
        self.forgets.drain(Drain::UntilRequest);
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
