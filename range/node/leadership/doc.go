// Package leadership decides which replicas of a data node lead.
//
// The first voter of a descriptor, or the one that the core wants, is the preferred leader. It
// campaigns at once in a new group, and first after a restart (Elections). A leader that is not the
// preferred one hands over when the preferred replica is healthy and has everything (Transfers).
// Both go through lists of exactly the groups concerned: those without a known leader, and those
// led here and preferred elsewhere. A group that is as it should be is in no list, and costs
// nothing.
//
// The lock of Elections is a leaf.
package leadership
