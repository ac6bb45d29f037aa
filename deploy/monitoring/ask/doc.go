// Command ask asks a Prometheus every query of every dashboard, and says which have no result
// though they should; and whether it evaluates the alert rules without errors, and which alerts
// fire. check.sh starts what it needs.
package main
