// Package target provides access to the place where backups are stored: a directory, or a bucket of
// an object store that speaks the protocol of Amazon S3. Both store objects of at most MaxObject
// bytes under names, and both behave the same. One suite of tests runs against both.
//
// A name consists of segments that are separated by slashes (CheckName). The name of an object must
// not be a folder of another object's name: "a" and "a/b" must not both exist.
//
// # Files
//
// An object is a file below the directory of the URL. A write creates a temporary file in the same
// folder, syncs it, and then renames it (Put) or links it (Create). Then it syncs the folder, and
// every folder above that is not known to be durable. So an object is complete or absent, even
// after a crash. The name of a temporary file contains a tilde, and therefore a temporary file is
// never listed as an object. Sweep removes the temporary files that a crash has left. Create needs
// hard links, which local file systems and NFS have. Delete removes folders that have become empty.
//
// # S3
//
// An object is written by one request with its MD5. There are no multipart uploads, because a crash
// could leave parts of them. Create is a write with the condition "If-None-Match: *". AWS, MinIO,
// Ceph, Cloudflare and others check this condition. Probe finds out whether a server does.
//
// The library (minio-go) makes one attempt. The method do in s3_retry.go makes further attempts.
// Three consequences of lost answers and slow connections:
//
//   - A Put or Delete whose answer was lost is repeated. The first attempt may still be under way
//     inside the server, and may take effect after the call has returned. Therefore a name should
//     be written with one content only, and a deleted name should not be used again. Changing data
//     is written with Create, under a new name each time.
//   - A Create whose answer was lost finds an object when it is repeated. If that object has the
//     content of the call, the call succeeds.
//   - A connection that makes no progress for Options.StallTimeout is cut. A slow connection is
//     not.
//
// # Invariants
//
//   - No error and no String contains credentials. URLs cannot contain credentials.
//   - The bytes given to Put and Create are not read after the call has returned, even if a request
//     is still being sent.
//   - Get allocates at most MaxObject bytes.
//
// # Imports
//
// rpc/backoff. The SDK does not import this package, because that would add minio-go to the SDK.
package target
