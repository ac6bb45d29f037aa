// Package coreaddr knows the addresses of the members of the core (Book). It merges three sources:
// the record of the store, the leader's answers, and the announcements of members. Each source can
// be out of date. A Book has its own lock, and calls the stores with the lock held.
package coreaddr
