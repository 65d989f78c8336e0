"""What learners learn from: files of data sets, images, batches."""
