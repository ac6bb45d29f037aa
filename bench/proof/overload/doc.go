// Package main sends several times more requests to three real servers than the servers can answer,
// and checks that the servers keep working: make overload.
//
// A run has four phases. First the program measures the best rate of the cluster, with clients that
// wait for each answer before they send the next request. Then some requests come in calm. Then
// requests come at a multiple of the best rate, whether or not earlier requests are answered, from
// four kinds of clients:
//
//	flood    most of the rate, priority normal, keyspace "flood"
//	high     a little, priority high, keyspace "flood": the same tenant as the flood
//	modest   less than its share of the servers, priority normal, keyspace "modest"
//	low      a part, priority low, keyspace "low"
//
// In the last phase it is calm again. The flood and the requests of low priority come from a
// process of their own. Otherwise they would take processor time from the other clients. The servers
// run on half of the machine's processors, and the clients on the other half (Linux only; -together
// lets all of them share the processors).
//
// A run fails if the goodput in the overload is below 85 % of the best rate, if the 99th percentile
// of the requests of high priority is more than 3 times the percentile in calm, if a request of the
// modest tenant fails, if a server has more memory than its limit, if a partition had an election,
// or if it is not calm 5 seconds after the end of the overload.
package main
