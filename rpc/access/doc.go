// Package access is the question that a server of keyspaces' data asks before it takes a client's
// request: may this client do that to these keys? Where requests arrive (package rpc and what
// stands behind it) asks; what knows users, roles and tokens answers. Neither needs the other.
package access
