// Package access is the interface between those that serve clients' requests for data and those
// that know users, roles and tokens. Package rpc asks whether a client has certain rights to
// certain keys; an implementation of Guard answers. Neither depends on the other.
package access
