// Package spacealarm raises and ends the alarm NOSPACE of a member of the core, and has the
// coordination store give back what was deleted while the alarm stands (Alarm). One goroutine
// looks; its fields belong to that goroutine.
package spacealarm
