// Package top makes the picture of `tidemark top` from the reports of the cluster: what each node
// does, which partitions do the most, and which requests took long. It asks nothing and does not
// write to a terminal: a View has the data, and Lines returns the picture as text.
package top
