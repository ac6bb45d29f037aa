// Package catalog reads what is in a target, without a cluster: which backups there are, what each
// contains, the records of a keyspace as a chain of backups has them, and whether all of it is what
// was written.
//
// A chain is read as layers, the latest first. Of each row, the version in the latest layer that
// has one is what could be read at the moment of the chain's last backup: Records merges the layers
// row by row, with the present piece of each layer and the memory of the one before.
package catalog
