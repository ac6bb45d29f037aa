// Package output prints the results of commands in the format of --output:
//
//	table  for people: aligned columns that fit the screen, bytes that do not print are escaped,
//	       sizes with a unit
//	json   for programs: one object a line, so that any number of rows can be streamed; numbers
//	       are numbers, durations seconds, and whatever does not print is escaped
//	tsv    for programs and spreadsheets: tab-separated, escaped so that it can be read back exactly
//	raw    keys and values as they are; at a terminal, what it would act on is escaped, and in words
//	       everywhere
//
// A List holds a short table (nodes, keyspaces, partitions) in memory and aligns all of its rows.
// Rows streams pairs of key and value in constant memory. `tidemark load` can read the output of
// Rows in json and tsv. With --headers, tsv begins with a line of names.
package output
