// Package identity keeps the token by which the servers know a client's user.
//
// The client's user.
// A token says it, and ends after some minutes. The sender gets one before its first stream, and
// another one every tokenAge, which it shows on the streams that are open, that of the partition
// table too; besides when a server has refused a request because it knows no user by what was
// shown. A call that needs one meanwhile waits for the same call. Where no token can be had,
// requests go without, and the servers judge: while authentication is not enabled they ask for
// none, whether the core answers or not.
package identity
