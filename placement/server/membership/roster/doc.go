// Package roster has functions over records of the core's members: how to find a member in a
// record, and by which steps one record becomes another. It is pure: it has no lock, reads no clock
// and no store.
//
// NextStep returns the next step towards a goal, given the present members. FollowStep returns the
// step by which the coordination store's members follow the core's members.
//
// The package must not import the Membership that carries the steps out.
package roster
