// Package spacealarm raises and ends the alarm NOSPACE of a member of the core. While the alarm is
// raised, it makes the coordination store return the space of deleted data to the disk (Alarm). One
// goroutine does the checks. Its fields belong to that goroutine.
package spacealarm
