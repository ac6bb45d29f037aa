// Package bugreport collects the data for a report of a fault in a zip file: the state of the
// cluster and the findings of a doctor as JSON, and from each server its examination, metrics,
// stacks, profiles and the last lines of its log.
//
// Keys and values of users, secrets and credentials are left out. Keys that are bounds of
// partitions are removed before they are written (Hide). Servers leave keys out of the lines of
// their logs. No other collected data contains any of these.
package bugreport
