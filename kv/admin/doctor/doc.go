// Package doctor looks for problems of a cluster, present ones and ones that may come soon, and
// says what to do.
//
// Gather asks the cluster and each of its servers for facts. Judge has no state and asks nothing:
// it turns the Facts into a Report, with one Check for each area, in the order of their importance.
// A check without findings is in order. If the facts for a check could not be read, the check says
// so, and is not in order.
//
// The findings include the problems of package health, which status and the console show. In
// addition, package doctor checks machines: limits, certificates, links and settings.
package doctor
