"""All-reduces over MPI: a reducer for each way of carrying out an ordering."""
