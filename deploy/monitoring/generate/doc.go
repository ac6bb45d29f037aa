// Command generate writes the dashboards and alert rules of package monitoring, below the folder
// that it is given (default deploy/monitoring).
package main
