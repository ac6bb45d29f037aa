// Package rules has placement rules: what a keyspace can ask of the nodes of its replicas and
// leaders. It reads rules as they are given on a command line, matches the labels of nodes with
// them, and finds out whether replicas on given nodes satisfy them.
//
// A node is reduced to a Mask, the set of rules that it matches. All that follows is a matter of
// masks: which nodes a rule for all replicas forbids (Allows), how many rules a set of replicas
// breaks (Match), and which rules a set of nodes can never satisfy together (Shortage).
package rules
