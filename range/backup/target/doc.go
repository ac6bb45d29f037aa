// Package target is where backups are kept: a directory, or a bucket of an object store that speaks
// the protocol of Amazon S3. Both keep objects of at most MaxObject bytes under names, and both
// behave the same; one suite of tests runs against both.
//
// A name consists of segments, separated by slashes (CheckName). No name of an object is a folder
// of another one: where there is "a/b", there must not be "a".
//
// # Files
//
// An object is a file below the directory of the URL. A write goes to a temporary file beside it,
// which is synced and then renamed (Put) or linked (Create); then the directory is synced, and so
// is every directory above that was not known to be durable. So an object is there whole or not at
// all, after a crash too. A temporary file has a tilde in its name, and therefore is never listed
// as an object; Sweep removes those that a crash has left. Create needs hard links, which local
// file systems and NFS have. Delete removes folders that have become empty.
//
// # S3
//
// An object is written by one request, with its MD5; there are no multipart uploads, of which a
// crash could leave parts. Create is a write with the condition "If-None-Match: *", which AWS,
// MinIO, Ceph, Cloudflare and others check. Probe finds out whether a server does.
//
// The library (minio-go) makes one attempt; do in s3_retry.go makes the next ones. Three things
// follow from lost answers:
//
//   - A Put or Delete whose answer was lost is repeated. The first attempt may still be on its way
//     inside the server, and take effect after the call has returned. Therefore a name should get
//     one content only, and a name that was deleted should not be used again; what must change is
//     written under a new name with Create.
//   - A Create whose answer was lost finds an object when it is repeated. If that has the content
//     of the call, it counts as written by the call.
//   - A connection that makes no progress for Options.StallTimeout is cut. A slow one is not.
//
// # Invariants
//
//   - No error and no String has credentials in it; they cannot be part of a URL.
//   - The bytes given to Put and Create are not read after the call has returned, even if a request
//     is still on its way.
//   - Get allocates at most MaxObject bytes.
//
// # Imports
//
// rpc/backoff. The SDK does not import this package, because minio-go comes with it.
package target
