// Package coreaddr knows at which addresses the members of the core are (Book). It merges three
// sources: the record of the store, the leader's answers, and the announcements of members. Each
// source can be out of date. A Book has its own lock, and calls the stores under the lock.
package coreaddr
